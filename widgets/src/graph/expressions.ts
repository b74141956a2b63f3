/**
 * Regular expressions that a person typed or a link carries. The matcher can take exponential time
 * for a few characters and cannot be stopped from within, so it runs in a worker, which can
 * (workbench/support/user_regex.py is the same for the server).
 */

/** How long the expressions of a query may take (milliseconds). */
const PATIENCE = 2000;

/** Expressions, and the texts in which each is looked for. */
export type Asked = Map<string, readonly string[]>;
/** In which of its texts each expression is found. */
export type Answers = ReadonlyMap<string, ReadonlySet<string>>;

/** An expression that cannot be read, or not be answered; `fix`: what to do. */
export class BadExpression extends Error {
  constructor(
    what: string,
    readonly fix: string,
  ) {
    super(what);
  }
}

/**
 * In which texts each expression is found, whatever the case. The worker gets the text of this
 * function, which may therefore name nothing of this module.
 */
export function answer(asked: Asked): Answers {
  return new Map(
    [...asked].map(([source, texts]) => {
      const expression = new RegExp(source, 'i');
      return [source, new Set(texts.filter((text) => expression.test(text)))];
    }),
  );
}

/** The answer of a worker; BadExpression where it has none, nothing at all after `signal`. */
export async function ask(asked: Asked, signal: AbortSignal): Promise<Answers> {
  if (asked.size === 0) return new Map();
  for (const source of asked.keys()) check(source);
  const script = `onmessage = ({ data }) => postMessage((${answer})(data));`;
  const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  let end = () => URL.revokeObjectURL(url);
  try {
    return await new Promise((resolve, reject) => {
      const worker = makeWorker(url);
      const late = new BadExpression('expression takes too long', 'leave out nested repeats such as (a+)+');
      const timer = setTimeout(reject, PATIENCE, late);
      end = () => {
        clearTimeout(timer);
        worker.terminate();
        URL.revokeObjectURL(url);
      };
      signal.addEventListener('abort', end);
      if (signal.aborted) end();
      worker.onmessage = ({ data }) => resolve(data);
      // Without a message: a policy of the page kept it from starting.
      worker.onerror = ({ message }) => reject(message ? unreadable(message) : noWorker());
      worker.postMessage(asked);
    });
  } finally {
    end();
  }
}

function makeWorker(url: string): Worker {
  try {
    return new Worker(url);
  } catch {
    throw noWorker();
  }
}

function check(source: string): void {
  try {
    new RegExp(source, 'i');
  } catch (problem) {
    throw unreadable((problem as Error).message);
  }
}

const unreadable = (why: string) =>
  new BadExpression(`no expression: ${why}`, 'a \\ before . ( [ * + ? takes them as they are');

const noWorker = () =>
  new BadExpression('no expressions here', 'search by words: this page allows no workers');
