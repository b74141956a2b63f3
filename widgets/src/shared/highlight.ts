/** Syntax highlighting of the languages in this workbench: one scanner per language, one line per call. */

import { h } from './dom';

export type Language = 'mlir' | 'python' | 'llvm' | 'asm' | 'text';
export type TokenClass = 'k' | 't' | 'v' | 's' | 'n' | 'c' | 'f' | 'a' | '';
export type Token = [text: string, kind: TokenClass];

type Rule = [RegExp, TokenClass];

const NUMBER = /0x[0-9a-fA-F]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;

const RULES: Record<Language, Rule[]> = {
  mlir: [
    [/\/\/.*/y, 'c'],
    [/loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)/y, 'c'],
    [/%[\w$.-]+(?:#\d+)?/y, 'v'],
    [/"[A-Za-z_][\w.]*"(?=\()/y, 'f'],
    [STRING, 's'],
    [/[@^#!][\w$.-]+/y, 'a'],
    [/(?:tensor|memref|vector|complex|tuple)\b|(?<![\w.])(?:[su]?i\d+|b?f\d+\w*|index|none)\b/y, 't'],
    [/<(?:(?:\d+|\?|[a-z]\w*)x)*[a-z]\w*>/y, 't'],
    [/dense(?:_resource)?\b|true\b|false\b|unit\b|array\b/y, 'k'],
    [/[a-zA-Z_]\w*(?=\s*=)/y, 'a'],
    [/[a-zA-Z_][\w.]*/y, ''],
    [NUMBER, 'n'],
  ],
  python: [
    [/#.*/y, 'c'],
    [/[rbf]*(?:"""[^]*?"""|'''[^]*?'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/y, 's'],
    [/@[\w.]+/y, 'a'],
    [
      /(?:and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b/y,
      'k',
    ],
    [/(?:range|prange|len|min|max|abs|int|float|carray|farray)\b(?=\()/y, 't'],
    [/[a-zA-Z_]\w*(?=\()/y, 'f'],
    [/[a-zA-Z_]\w*/y, ''],
    [NUMBER, 'n'],
  ],
  llvm: [
    [/;.*/y, 'c'],
    [STRING, 's'],
    [/%[\w$.-]+/y, 'v'],
    [/@[\w$."-]+/y, 'f'],
    [/![\w.]+|#\d+/y, 'c'],
    [/(?:i\d+|half|bfloat|float|double|void|ptr|label|metadata)\b|<\d+ x \w+>|\[\d+ x \w+\]/y, 't'],
    [
      /(?:define|declare|ret|br|switch|phi|call|tail|load|store|getelementptr|inbounds|alloca|icmp|fcmp|select|add|sub|mul|sdiv|udiv|srem|urem|fadd|fsub|fmul|fdiv|fneg|and|or|xor|shl|lshr|ashr|zext|sext|trunc|bitcast|ptrtoint|inttoptr|sitofp|uitofp|fptosi|fpext|fptrunc|extractelement|insertelement|shufflevector|extractvalue|insertvalue|unreachable|attributes|target|source_filename|align|nuw|nsw|noalias|nocapture|nounwind|fast|to|true|false|null|undef|poison|zeroinitializer)\b/y,
      'k',
    ],
    [/[a-zA-Z_][\w.]*:?/y, ''],
    [NUMBER, 'n'],
  ],
  asm: [
    [/[#;].*|\/\/.*/y, 'c'],
    [STRING, 's'],
    [/^[\w.$@]+:/y, 'f'],
    [/\.[a-zA-Z_][\w.]*/y, 'a'],
    [/%?\b(?:[re]?[abcd]x|[re]?[sd]il?|[re]?[sb]pl?|r\d+[dwb]?|[xyz]mm\d+|k[0-7]|rip|[abcd][lh]|st\(\d\))\b/y, 'v'],
    [/\b(?:byte|word|dword|qword|[xyz]mmword|ptr)\b/y, 't'],
    [/\b(?:j[a-z]{1,4}|call|ret[qn]?|syscall)\b/y, 'f'],
    [/\bv?[a-z][a-z0-9]*(?=\s|$)/y, 'k'],
    [/[a-zA-Z_.$@][\w.$@]*/y, ''],
    [/\$?-?(?:0x[0-9a-fA-F]+|\d+)/y, 'n'],
  ],
  text: [],
};

/** The tokens of one line; joined they are the line. */
export function tokens(line: string, language: Language): Token[] {
  const rules = RULES[language];
  const result: Token[] = [];
  let plain = '';
  let at = 0;
  const text = line.length > 4000 ? line.slice(0, 4000) : line;
  while (at < text.length) {
    let matched = false;
    for (const [pattern, kind] of rules) {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      if (!match || match[0] === '') continue;
      if (kind === '') plain += match[0];
      else {
        if (plain) result.push([plain, '']);
        plain = '';
        result.push([match[0], kind]);
      }
      at += match[0].length;
      matched = true;
      break;
    }
    if (!matched) plain += text[at++];
  }
  plain += line.slice(text.length);
  if (plain) result.push([plain, '']);
  return result;
}

/** Ranges of characters to mark, as [from, to) pairs in order. */
export type Marks = [number, number][];

/** One line as elements, with syntax colours and marked ranges; plain text after `columns`. */
export function highlighted(
  line: string,
  language: Language,
  marks: Marks = [],
  columns = Infinity,
): DocumentFragment {
  const fragment = document.createDocumentFragment();
  let at = 0;
  let mark = 0;
  for (const [text, kind] of tokens(line.slice(0, Math.max(columns + 40, 80)), language)) {
    if (at > columns) break;
    let from = at;
    const end = at + text.length;
    while (from < end) {
      while (mark < marks.length && marks[mark]![1] <= from) mark++;
      const range = marks[mark];
      const marked = range !== undefined && range[0] <= from;
      const to = Math.min(end, range === undefined ? end : marked ? range[1] : range[0]);
      const part = line.slice(from, to);
      const classes = [kind && `hl-${kind}`, marked && 'word'].filter(Boolean).join(' ');
      fragment.append(classes ? h('span', { class: classes }, part) : part);
      from = to;
    }
    at = end;
  }
  if (at < line.length) fragment.append(line.slice(at));
  return fragment;
}

export const HIGHLIGHT_STYLE = `
.cw .hl-k { color: var(--hl-k); } .cw .hl-t { color: var(--hl-t); } .cw .hl-v { color: var(--hl-v); }
.cw .hl-s { color: var(--hl-s); } .cw .hl-n { color: var(--hl-n); } .cw .hl-c { color: var(--faint); }
.cw .hl-f { color: var(--hl-f); font-weight: 600; } .cw .hl-a { color: var(--hl-a); }
`;
