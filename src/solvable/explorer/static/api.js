// All requests to the server, with at most one request per stream in flight.

/** A refusal in one sentence; `field` names the control it concerns, if any. */
export class Refusal extends Error {
  constructor(sentence, status = 0, field = null, stale = false) {
    super(sentence);
    Object.assign(this, { status, field, stale });
  }
}

const SILENT = "The server does not respond. Is `solvable explore` still running?";

async function ask(path, body, signal) {
  const options = body === undefined
    ? { headers: { Accept: "application/json" } }
    : { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify(body) };
  let answer;
  for (let attempt = 0; ; attempt++) {
    try {
      answer = await fetch(path, { ...options, credentials: "same-origin", signal });
    } catch {
      throw new Refusal(SILENT, 0, null, Boolean(signal?.aborted));
    }
    if (answer.status !== 429 || attempt === 3) break;
    await new Promise((go) => setTimeout(go, 400 * (attempt + 1)));
  }
  if (answer.ok) return answer;
  let reply = {};
  try { reply = await answer.json(); } catch { /* not JSON: use the status */ }
  const sentence = reply.error ?? (answer.status === 401
    ? "This session has ended; open the link that `solvable explore` printed."
    : `The server returned status ${answer.status}.`);
  throw new Refusal(sentence, answer.status, reply.field ?? null, Boolean(reply.stale));
}

// Two pages of one session, or one page opened twice, must not make each other's requests stale.
const here = Math.random().toString(36).slice(2, 10);

const json = async (path, body, signal) => (await ask(path, body, signal)).json();

export const models = () => json("/api/models");
export const kept = (id) => json(`/api/models/${encodeURIComponent(id)}/kept`);
export const searchWords = () => json("/api/words");
export const model = (id) => json(`/api/models/${encodeURIComponent(id)}`);
export const claims = (id, signal) => json(`/api/models/${encodeURIComponent(id)}/claims`, undefined, signal);
export const theory = (view, stream, sequence, signal, draft = false) => json("/api/theory", { view, stream: `${here}-${stream}`, sequence, draft }, signal);
export const jobs = () => json("/api/jobs");
export const simulate = (view) => json("/api/simulate", { view });
export const cancel = (job) => json(`/api/jobs/${encodeURIComponent(job)}/cancel`, {});
export const reproduce = (view, also = {}) => json("/api/reproduce", { view, ...also });
export const stories = () => json("/api/stories");
export const study = () => json("/api/study");
export const studySeries = (request) => json("/api/study/series", request);

/** A file made by the server: its bytes and its name. */
export async function exported(view, format, job, also = {}) {
  const answer = await ask("/api/export", { view, format, job, ...also });
  const named = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") ?? "");
  return { blob: await answer.blob(), name: named ? named[1] : `solvable.${format}` };
}

/** Call `handle(kind, payload)` for every event of a job. Returns a function that stops listening. */
export function events(job, handle) {
  const source = new EventSource(`/api/jobs/${encodeURIComponent(job)}/events`);
  const last = new Set(["done", "failed", "cancelled"]);
  let failures = 0;
  for (const kind of ["progress", "points", "agreement", "done", "failed", "cancelled"]) {
    source.addEventListener(kind, (event) => {
      failures = 0;
      if (last.has(kind)) source.close();
      handle(kind, event.data ? JSON.parse(event.data) : {});
    });
  }
  source.onerror = () => {
    // The browser reconnects automatically and the history is replayed; after three failures in a row the server is gone.
    if (++failures < 3 && source.readyState !== EventSource.CLOSED) return;
    source.close();
    handle("failed", { error: SILENT });
  };
  return () => source.close();
}

let sequence = 0; // of all pages of this tab: a new page that began again at 1 would be taken for an older request
const PACE = 25; // milliseconds between requests: within the server's rate limit, too short to be noticed

/**
 * Requests of which only the newest matters: one in flight, at most one waiting, so that no backlog can grow. `stop()` ends
 * them: the server notices that nobody waits any more.
 */
export function latest(send, settle) {
  let busy = false, waiting = null, sent = 0;
  const ended = new AbortController();
  const pump = async () => {
    busy = true;
    while (waiting !== null) {
      const early = sent + PACE - performance.now();
      if (early > 0) await new Promise((go) => setTimeout(go, early));
      sent = performance.now();
      const question = waiting;
      waiting = null;
      let answer = null, refusal = null;
      try {
        answer = await send(question, ++sequence, ended.signal);
      } catch (problem) {
        refusal = problem instanceof Refusal ? problem : new Refusal(String(problem));
      }
      if (ended.signal.aborted) return;
      if (!refusal?.stale) settle(question, answer, refusal, waiting !== null);
    }
    busy = false;
  };
  const put = (question) => {
    waiting = question;
    if (!busy && !ended.signal.aborted) pump();
  };
  put.stop = () => ended.abort();
  return put;
}
