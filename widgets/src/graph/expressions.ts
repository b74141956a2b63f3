/**
 * Regular expressions typed by the user or contained in a link. Matching can take exponential time
 * for a few characters and cannot be stopped from within, so it runs in a worker, which can be
 * terminated (workbench/support/user_regex.py does the same on the server).
 */

/** The time limit for the expressions of a query (milliseconds). */
const PATIENCE = 2000;

/** Expressions, and the texts to search for each. */
export type ExpressionTexts = Map<string, readonly string[]>;
/** The matching texts of each expression. */
export type ExpressionMatches = ReadonlyMap<string, ReadonlySet<string>>;

/** An invalid expression, or one without an answer; `fix`: what to do. */
export class BadExpression extends Error {
  constructor(
    what: string,
    readonly fix: string,
  ) {
    super(what);
  }
}

/**
 * The texts that match each expression, ignoring case. The worker gets the source of this
 * function, which therefore must not refer to this module.
 */
export function matchTexts(expressionTexts: ExpressionTexts): ExpressionMatches {
  return new Map(
    [...expressionTexts].map(([source, texts]) => {
      const expression = new RegExp(source, 'i');
      return [source, new Set(texts.filter((text) => expression.test(text)))];
    }),
  );
}

/** The answer of a worker; throws BadExpression without one, never settles after `signal`. */
export async function matchInWorker(expressionTexts: ExpressionTexts, signal: AbortSignal): Promise<ExpressionMatches> {
  if (expressionTexts.size === 0) return new Map();
  for (const source of expressionTexts.keys()) checkExpression(source);
  const script = `onmessage = ({ data }) => postMessage((${matchTexts})(data));`;
  const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
  let end = () => URL.revokeObjectURL(url);
  try {
    return await new Promise((resolve, reject) => {
      const worker = makeWorker(url);
      const timeout = new BadExpression('expression takes too long', 'leave out nested repeats such as (a+)+');
      const timer = setTimeout(reject, PATIENCE, timeout);
      end = () => {
        clearTimeout(timer);
        worker.terminate();
        URL.revokeObjectURL(url);
      };
      signal.addEventListener('abort', end);
      if (signal.aborted) end();
      worker.onmessage = ({ data }) => resolve(data);
      // No message: a policy of the page prevented the start.
      worker.onerror = ({ message }) => reject(message ? invalidExpression(message) : workerUnavailable());
      worker.postMessage(expressionTexts);
    });
  } finally {
    end();
  }
}

function makeWorker(url: string): Worker {
  try {
    return new Worker(url);
  } catch {
    throw workerUnavailable();
  }
}

function checkExpression(source: string): void {
  try {
    new RegExp(source, 'i');
  } catch (error) {
    throw invalidExpression((error as Error).message);
  }
}

const invalidExpression = (reason: string) =>
  new BadExpression(`invalid expression: ${reason}`, 'escape . ( [ * + ? with \\ to match them literally');

const workerUnavailable = () =>
  new BadExpression('expressions unavailable', 'search by words: this page does not allow workers');
