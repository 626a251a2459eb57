// The server: which models there are, and one streamed chat completion. Only paths of the page's own origin are asked for.

class ApiFailure extends Error {
  // kind: 'network' (no answer), 'http' (a status that is not 200), 'stream' (an error frame), 'broken' (the stream ended too early).
  constructor(kind, message, status = 0, retryAfter = 0) {
    super(message);
    this.kind = kind;
    this.status = status;
    this.retryAfter = retryAfter;  // seconds; 0: not said
  }
}

function headersWith(key) {
  const headers = {'Content-Type': 'application/json'};
  if (key !== '') headers.Authorization = `Bearer ${key}`;
  return headers;
}

async function ask(path, options) {
  try {
    return await fetch(path, {cache: 'no-store', credentials: 'same-origin', redirect: 'error', ...options});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiFailure('network', 'The server can\'t be reached.');
  }
}

async function failureOf(response) {
  let message = '';
  try {
    const body = await response.json();
    if (typeof body.error.message === 'string') message = body.error.message;
  } catch { /* not the server's own words, then: a proxy's */ }
  const wait = Number.parseInt(response.headers.get('Retry-After') || '', 10);
  return new ApiFailure('http', message || `The server answered with status ${response.status}.`, response.status,
                        wait > 0 && wait < 86400 ? wait : 0);
}

async function fetchModels(key) {
  const response = await ask('v1/models', {headers: headersWith(key)});
  if (!response.ok) throw await failureOf(response);
  const body = await response.json();
  const ids = Array.isArray(body.data) ? body.data.map((model) => model.id) : [];
  return ids.filter((id) => typeof id === 'string');
}

// Server-sent events from pieces of text: {data} of a frame, {comment} of a line that keeps the connection alive.
class EventReader {
  constructor() {
    this.rest = '';
    this.data = [];
  }

  push(text) {
    const events = [];
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    for (let line of lines) {
      if (line.endsWith('\r')) line = line.slice(0, -1);
      if (line === '') {
        if (this.data.length > 0) events.push({data: this.data.join('\n')});
        this.data = [];
      } else if (line.startsWith(':')) {
        events.push({comment: line.slice(1).trim()});
      } else if (line.startsWith('data:')) {
        this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
    return events;
  }
}

// Sends `body` and calls on.progress({done, total}) while the prompt is read, on.reasoning(text) and on.content(text) for each piece.
// Gives {finish, usage, timings} once the answer is complete. Throws ApiFailure, or the AbortError of `signal`.
async function streamChat(body, key, signal, on) {
  const response = await ask('v1/chat/completions', {
    method: 'POST',
    headers: headersWith(key),
    body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
    signal,
  });
  if (!response.ok) throw await failureOf(response);
  const outcome = {finish: '', usage: null, timings: null};
  const events = new EventReader();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      throw new ApiFailure('broken', 'The connection broke before the answer was complete.');
    }
    if (piece.done) {
      throw new ApiFailure('broken', 'The connection ended before the answer was complete.');
    }
    for (const event of events.push(piece.value)) {
      if (event.comment !== undefined) {
        const match = /^prefill (\d+)\/(\d+)$/.exec(event.comment);
        if (match !== null) on.progress({done: Number(match[1]), total: Number(match[2])});
        continue;
      }
      if (event.data === '[DONE]') {
        reader.cancel().catch(() => {});
        return outcome;
      }
      takeChunk(event.data, outcome, on);
    }
  }
}

function takeChunk(data, outcome, on) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiFailure('stream', 'The server sent something that is no part of an answer.');
  }
  if (chunk.error) throw new ApiFailure('stream', String(chunk.error.message || 'The server failed.'));
  if (chunk.usage) outcome.usage = chunk.usage;
  const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
  if (chunk.timings) outcome.timings = chunk.timings;
  if (choice === undefined) return;
  const delta = choice.delta || {};
  if (typeof delta.reasoning_content === 'string' && delta.reasoning_content !== '') on.reasoning(delta.reasoning_content);
  if (typeof delta.content === 'string' && delta.content !== '') on.content(delta.content);
  if (typeof choice.finish_reason === 'string') outcome.finish = choice.finish_reason;
}
