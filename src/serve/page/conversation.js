// What a conversation is, whether made here, read from the browser's store or imported from a file:
//   {id, title, created, updated, settings, turns}; times in milliseconds since 1970.
//   A turn is {id, role: 'user', content} or an answer:
//   {id, role: 'assistant', content, reasoning, state, problem, finish, usage, timings, thoughtMs}
//   state: 'running', 'done', 'stopped' (by the user), 'cut' (the page or the connection went away), 'failed'.
//   problem: null, or {message, status, retryAfter} of a cut or failed answer.

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

// One of each is sent if it is set: {key, label, hint, min, max, step, integer}. What is not set is the server's to choose.
const SAMPLING = [
  {key: 'temperature', label: 'Temperature', hint: '0 always takes the likeliest token', min: 0, max: 2, step: 0.05},
  {key: 'top_p', label: 'Top p', hint: 'likeliest tokens that together have this probability', min: 0, max: 1, step: 0.01},
  {key: 'top_k', label: 'Top k', hint: 'this many likeliest tokens; 0: all', min: 0, max: 1000000, step: 1, integer: true},
  {key: 'min_p', label: 'Min p', hint: 'tokens at least this fraction as likely as the likeliest', min: 0, max: 0.99, step: 0.01},
  {key: 'max_tokens', label: 'Max tokens', hint: 'of an answer, its reasoning included', min: 1, max: 2147483647, step: 1, integer: true},
  {key: 'seed', label: 'Seed', hint: 'the same seed and text give the same answer', min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, integer: true},
];
const EFFORTS = [['', 'Full'], ['high', 'High'], ['low', 'Low'], ['none', 'Off']];

function cleanSettings(value) {
  const settings = {system: '', effort: ''};
  if (value === null || typeof value !== 'object') return settings;
  if (typeof value.system === 'string') settings.system = value.system;
  if (EFFORTS.some(([effort]) => effort === value.effort)) settings.effort = value.effort;
  for (const {key, min, max, integer} of SAMPLING) {
    const number = value[key];
    if (typeof number === 'number' && number >= min && number <= max && (!integer || Number.isInteger(number))) settings[key] = number;
  }
  return settings;
}

function newConversation(settings) {
  const now = Date.now();
  return {id: newId(), title: '', created: now, updated: now, settings: cleanSettings(settings), turns: []};
}

const userTurn = (content) => ({id: newId(), role: 'user', content});
const answerTurn = () => ({
  id: newId(), role: 'assistant', content: '', reasoning: '', state: 'running', problem: null, finish: '', usage: null, timings: null, thoughtMs: 0,
});

function titleOf(conversation) {
  if (conversation.title !== '') return conversation.title;
  const first = conversation.turns.find((turn) => turn.role === 'user');
  const line = first ? first.content.trim().split('\n')[0] : '';
  if (line === '') return 'New chat';
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

// The request's body for an answer after the conversation's turns up to `end`. An answer without a word is left out. Reasoning goes
// back as it came, so that the server finds the tokens it sampled.
function requestOf(conversation, end, model) {
  const {settings} = conversation;
  const messages = [];
  if (settings.system.trim() !== '') messages.push({role: 'system', content: settings.system});
  for (const turn of conversation.turns.slice(0, end)) {
    if (turn.role === 'user') {
      messages.push({role: 'user', content: turn.content});
    } else if (turn.content !== '' || turn.reasoning !== '') {
      const message = {role: 'assistant', content: turn.content};
      if (turn.reasoning !== '') message.reasoning_content = turn.reasoning;
      messages.push(message);
    }
  }
  const body = {model, messages};
  for (const {key} of SAMPLING) if (settings[key] !== undefined) body[key] = settings[key];
  if (settings.effort !== '') body.reasoning_effort = settings.effort;
  return body;
}

// ---- From outside: nothing is believed

const textOr = (value, otherwise) => typeof value === 'string' ? value : otherwise;
const countOr = (value, otherwise) => typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : otherwise;

function cleanNumbers(value, keys) {
  if (value === null || typeof value !== 'object') return null;
  return Object.fromEntries(keys.map((key) => [key, countOr(value[key], 0)]));
}

function cleanUsage(value) {
  const usage = cleanNumbers(value, ['prompt_tokens', 'completion_tokens']);
  if (usage === null) return null;
  const details = value.prompt_tokens_details;
  return {...usage, prompt_tokens_details: {cached_tokens: countOr(details && details.cached_tokens, 0)}};
}

const cleanTimings = (value) =>
  cleanNumbers(value, ['queue_ms', 'prefill_tokens', 'prefill_ms', 'cached_tokens', 'decode_tokens', 'decode_ms']);

function cleanTurn(value) {
  if (value === null || typeof value !== 'object' || typeof value.content !== 'string') return null;
  if (value.role === 'user') return {id: newId(), role: 'user', content: value.content};
  if (value.role !== 'assistant') return null;
  const {problem} = value;
  const states = ['done', 'stopped', 'cut', 'failed'];
  return {
    id: newId(),
    role: 'assistant',
    content: value.content,
    reasoning: textOr(value.reasoning, ''),
    state: states.includes(value.state) ? value.state : 'cut',
    problem: problem && typeof problem.message === 'string' ?
        {message: problem.message, status: countOr(problem.status, 0), retryAfter: 0} : null,
    finish: textOr(value.finish, ''),
    usage: cleanUsage(value.usage),
    timings: cleanTimings(value.timings),
    thoughtMs: countOr(value.thoughtMs, 0),
  };
}

// Null if it is none. Its id is new: an import adds, and replaces nothing.
function cleanConversation(value) {
  if (value === null || typeof value !== 'object' || !Array.isArray(value.turns)) return null;
  const turns = value.turns.map(cleanTurn);
  if (turns.includes(null)) return null;
  const now = Date.now();
  return {
    id: newId(),
    title: textOr(value.title, '').slice(0, 200),
    created: countOr(value.created, now),
    updated: countOr(value.updated, now),
    settings: cleanSettings(value.settings),
    turns,
  };
}

const FILE_FORMAT = 'glint conversations';

function exportText(conversations) {
  return JSON.stringify({format: FILE_FORMAT, version: 1, exported: new Date().toISOString(), conversations}, null, 1);
}

// Throws an Error with a sentence for the user.
function importText(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('This file is not JSON.');
  }
  if (file === null || typeof file !== 'object' || file.format !== FILE_FORMAT || !Array.isArray(file.conversations)) {
    throw new Error('This file holds no conversations exported by this page.');
  }
  if (file.version !== 1) throw new Error('This file was exported by a newer version of this page.');
  const conversations = file.conversations.map(cleanConversation);
  const at = conversations.indexOf(null);
  if (at >= 0) throw new Error(`Conversation ${at + 1} of this file is damaged; nothing was imported.`);
  return conversations;
}
