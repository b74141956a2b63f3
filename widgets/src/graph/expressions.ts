/**
 * Regular expressions typed by the user or contained in a link. Matching can take exponential time
 * for a few characters and cannot be stopped from within, so it runs in a worker, which can be
 * terminated (workbench/support/user_regex.py does the same on the server).
 */

/** The time limit for the expressions of a query (milliseconds). */
const PATIENCE = 2000;

/** Expressions, and the texts to search for each. */
export type Asked = Map<string, readonly string[]>;
/** The matching texts of each expression. */
export type Answers = ReadonlyMap<string, ReadonlySet<string>>;

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
export function answer(asked: Asked): Answers {
  return new Map(
    [...asked].map(([source, texts]) => {
      const expression = new RegExp(source, 'i');
      return [source, new Set(texts.filter((text) => expression.test(text)))];
    }),
  );
}

/** The answer of a worker; throws BadExpression without one, never settles after `signal`. */
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
      // No message: a policy of the page prevented the start.
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
  new BadExpression(`invalid expression: ${why}`, 'escape . ( [ * + ? with \\ to match them literally');

const noWorker = () =>
  new BadExpression('expressions unavailable', 'search by words: this page does not allow workers');
