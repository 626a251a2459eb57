// The page as a whole: which conversation is shown, which answers are being written, and what happens on a click.

const part = (id) => document.getElementById(id);

const app = {
  store: new Store((sentence) => showBanner(sentence)),
  heads: [],
  current: null,      // the conversation shown; one that has no turns yet is not kept
  views: new Map(),   // of its turns, by id
  runs: new Map(),    // AnswerRun by conversation's id: they go on when another conversation is shown
  elsewhere: false,   // the last answer of `current` is being written in another tab
  models: [],
  model: '',
  key: preferences.get('key', 'session') || preferences.get('key') || '',
  askingKey: null,
  channel: 'BroadcastChannel' in window ? new BroadcastChannel('glint') : null,
};

// ---- Theme: the system's, or one that was chosen

const THEMES = [['', 'half', 'Colours: as the system'], ['light', 'sun', 'Colours: light'], ['dark', 'moon', 'Colours: dark']];

function applyTheme() {
  const theme = preferences.get('theme') || '';
  document.documentElement.dataset.theme = theme;
  const [, name, label] = THEMES.find(([value]) => value === theme) || THEMES[0];
  const button = part('theme');
  button.replaceChildren(icon(name));
  button.setAttribute('aria-label', label);
  button.title = label;
}

function nextTheme() {
  const at = THEMES.findIndex(([value]) => value === (preferences.get('theme') || ''));
  preferences.set('theme', THEMES[(at + 1) % THEMES.length][0] || null);
  applyTheme();
}

// ---- Words from the page to its user

function showBanner(sentence) {
  part('banner').hidden = sentence === null;
  part('banner').textContent = sentence || '';
}

let toastTimer = 0;

// A sentence that goes away, with what can be taken back.
function showToast(sentence, label = '', action = null) {
  const toast = part('toast');
  clearTimeout(toastTimer);
  const hide = () => { toast.hidden = true; };
  const later = () => { toastTimer = setTimeout(hide, 10000); };
  toast.replaceChildren(el('span', {}, sentence), ...(action === null ? [] : [el('button.plain', {
    type: 'button',
    onclick: () => {
      hide();
      action();
    },
  }, label)]), iconButton('close', 'Dismiss', hide));
  toast.onpointerenter = toast.onfocusin = () => clearTimeout(toastTimer);
  toast.onpointerleave = toast.onfocusout = later;
  toast.hidden = false;
  announce(sentence);
  later();
}

// ---- Models and key

function setModels(models) {
  app.models = models;
  const wanted = preferences.get('model');
  app.model = models.includes(wanted) ? wanted : models[0] || '';
  const select = part('model');
  select.replaceChildren(...models.map((id) => el('option', {value: id}, id)));
  select.value = app.model;
  select.hidden = models.length < 2;
  part('model-name').hidden = models.length !== 1;
  part('model-name').textContent = app.model;
}

async function loadModels() {
  const models = await fetchModels(app.key);
  if (models.length === 0) throw new ApiFailure('http', 'The server has no model.', 503);
  setModels(models);
  part('server-state').textContent = '';
}

// Looks until the server is there: it may still load its model.
async function findServer() {
  for (let wait = 1000; app.models.length === 0; wait = Math.min(wait * 1.5, 10000)) {
    try {
      await loadModels();
      return;
    } catch (error) {
      if (error.status === 401) {
        if (!await enterKey()) {
          part('server-state').textContent = 'No API key: the server does not answer without one.';
          return;
        }
        continue;
      }
      part('server-state').textContent = error.status === 503 ? 'The server is loading its model…' : error.message;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

// Asks once, though several things may be waiting for the answer. True if there is a new key.
function enterKey() {
  if (app.askingKey === null) {
    app.askingKey = askForKey(app.key !== '').then((answer) => {
      app.askingKey = null;
      if (answer === null) return false;
      setKey(answer.key, answer.keep);
      return true;
    });
  }
  return app.askingKey;
}

function setKey(key, keep) {
  app.key = key;
  preferences.set('key', key === '' || keep ? null : key, 'session');
  preferences.set('key', key === '' || !keep ? null : key);
}

// ---- The list of conversations

async function refreshList() {
  try {
    app.heads = await app.store.heads();
  } catch { /* the list stays what it was; the banner has said why */ }
  showList();
}

let listShown = '';

function showList() {
  const list = part('conversations');
  const wanted = JSON.stringify([app.heads, app.current && app.current.id, [...app.runs.keys()], list.querySelector('input') !== null]);
  if (wanted === listShown) return;
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  if (list.querySelector('input')) return;  // a name is being typed
  listShown = wanted;
  list.replaceChildren(...app.heads.map((head) => {
    const current = app.current !== null && head.id === app.current.id;
    const open = el('button.open', {type: 'button', 'data-key': head.id, 'aria-current': current ? 'page' : null, title: head.shown, onclick: () => openConversation(head.id)},
                    app.runs.has(head.id) ? el('span.busy', {role: 'img', 'aria-label': 'answering'}) : null, el('span.name', {}, head.shown));
    const tool = (name, words, action) => {
      const button = iconButton(name, `${words} “${head.shown}”`, action);
      button.title = words;
      button.dataset.key = `${head.id} ${name}`;
      return button;
    };
    return el(`li${current ? '.current' : ''}`, {'data-id': head.id}, open,
              el('span.tools', {}, tool('edit', 'Rename', () => renameConversation(head)), tool('save', 'Export', () => exportConversations([head.id])),
                 tool('trash', 'Delete', () => deleteConversation(head))));
  }));
  part('no-conversations').hidden = app.heads.length > 0;
  if (focused) {
    const again = [...list.querySelectorAll('button')].find((button) => button.dataset.key === focused);
    if (again) again.focus();
  }
}

// What is shown of a conversation may be newer than what is kept of it.
async function conversationOf(id) {
  if (app.current !== null && app.current.id === id) return app.current;
  if (app.runs.has(id)) return app.runs.get(id).conversation;
  return app.store.read(id);
}

function renameConversation(head) {
  const item = [...part('conversations').children].find((li) => li.dataset.id === head.id);
  const input = el('input', {type: 'text', 'aria-label': 'New name', maxlength: '200'});
  input.value = head.shown;
  let over = false;
  const finish = async (keep) => {
    if (over) return;
    over = true;
    const name = input.value.trim();
    input.remove();
    if (keep && name !== '' && name !== head.shown) {
      const conversation = await conversationOf(head.id);
      if (conversation !== null) {
        conversation.title = name;
        await keepConversation(conversation);
      }
    }
    showList();
    showTitle();
    const open = [...part('conversations').querySelectorAll('.open')].find((button) => button.dataset.key === head.id);
    if (open) open.focus();
  };
  input.addEventListener('keydown', (event) => {
    if (event.isComposing) return;
    if (event.key === 'Enter') finish(true);
    if (event.key === 'Escape') {
      event.stopPropagation();
      finish(false);
    }
  });
  input.addEventListener('blur', () => finish(true));
  item.replaceChildren(input);
  listShown = '';
  input.focus();
  input.select();
}

async function deleteConversation(head) {
  const conversation = await conversationOf(head.id);
  if (conversation === null) return refreshList();
  stopRun(head.id);
  await app.store.remove(head.id);
  tellOthers(head.id);
  if (app.current !== null && app.current.id === head.id) startConversation();
  await refreshList();
  showToast(`“${head.shown}” was deleted.`, 'Undo', async () => {
    await keepConversation(conversation);
    openConversation(conversation.id);
  });
}

// ---- Files

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  el('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function exportConversations(ids) {
  const conversations = (await Promise.all(ids.map(conversationOf))).filter((conversation) => conversation !== null);
  const day = new Date().toISOString().slice(0, 10);
  download(ids.length === 1 ? `glint-conversation-${day}.json` : `glint-conversations-${day}.json`, exportText(conversations));
}

function importConversations(dialog) {
  const input = el('input', {type: 'file', accept: '.json,application/json'});
  input.addEventListener('change', async () => {
    dialog.close();
    try {
      const conversations = importText(await input.files[0].text());
      for (const conversation of conversations) await keepConversation(conversation);
      showToast(conversations.length === 1 ? 'One conversation was imported.' : `${conversations.length} conversations were imported.`);
      if (conversations.length === 1) openConversation(conversations[0].id);
    } catch (error) {
      showToast(error.message);
    }
  });
  input.click();
}

function dataButtons(dialog) {
  const button = (label, onclick) => el('button.plain', {type: 'button', onclick}, label);
  return [
    button('Export all', () => exportConversations(app.heads.map((head) => head.id))),
    button('Import', () => importConversations(dialog)),
    app.key === '' ? button('Enter an API key', () => {
      dialog.close();
      enterKey();
    }) : button('Forget the API key', () => {
      setKey('', false);
      dialog.close();
      showToast('The key is forgotten.');
    }),
  ];
}

// ---- Conversations

async function keepConversation(conversation) {
  await app.store.write(conversation);
  tellOthers(conversation.id);
  await refreshList();
}

function tellOthers(id) {
  if (app.channel !== null) app.channel.postMessage({changed: id});
}

// While an answer is written its tab holds a lock of this name, together with whoever else holds it; a tab that closes or dies gives it
// back. Where there are no locks (a page by plain HTTP from another machine), tabs ask each other.
const lockOf = (id) => `glint-answer-${id}`;

function holdLock(id, until) {
  if (navigator.locks) navigator.locks.request(lockOf(id), {mode: 'shared'}, () => until).catch(() => {});
}

// True if another tab is writing an answer of that conversation.
async function isWrittenElsewhere(id) {
  if (navigator.locks) {
    const {held, pending} = await navigator.locks.query();
    return [...held, ...pending].some((lock) => lock.name === lockOf(id) && lock.mode === 'shared');
  }
  if (app.channel === null) return false;
  return new Promise((resolve) => {
    const hear = (event) => { if (event.data.running === id) finish(true); };
    const finish = (answer) => {
      app.channel.removeEventListener('message', hear);
      resolve(answer);
    };
    app.channel.addEventListener('message', hear);
    app.channel.postMessage({asked: id});
    setTimeout(() => finish(false), 500);
  });
}

// Looks again once the other tab has ended, however it did.
async function waitForOther(id) {
  if (navigator.locks) {
    await navigator.locks.request(lockOf(id), () => {});
  } else {
    do await new Promise((resolve) => setTimeout(resolve, 3000)); while (await isWrittenElsewhere(id));
  }
  if (app.elsewhere && app.current.id === id) openConversation(id);
}

async function hearOthers({data}) {
  if (data.asked !== undefined && app.runs.has(data.asked)) app.channel.postMessage({running: data.asked});
  if (data.changed === undefined) return;
  await refreshList();
  const shown = app.current !== null && app.current.id === data.changed && !app.runs.has(data.changed);
  const editing = part('turns').querySelector('form.edit') !== null;
  if (!shown || editing || !app.heads.some((head) => head.id === data.changed)) return;
  const place = scrolling.pinned ? null : scrolling.area().scrollTop;
  await openConversation(data.changed);
  if (place !== null) scrolling.returnTo(place);
}

function storedSettings() {
  try {
    return JSON.parse(preferences.get('settings'));
  } catch {
    return null;
  }
}

function startConversation() {
  const settings = app.current !== null ? app.current.settings : storedSettings();
  app.current = newConversation(settings);
  app.elsewhere = false;
  showConversation();
  part('prompt').focus();
}

async function openConversation(id) {
  let conversation = null;
  try {
    conversation = await conversationOf(id);
    const same = conversation === app.current;
    if (same && !app.runs.has(id)) conversation = await app.store.read(id) || conversation;
  } catch (error) {
    showToast(`This conversation can't be read: ${error.message}`);
    return;
  }
  if (conversation === null) {
    startConversation();
    return;
  }
  app.elsewhere = false;
  const last = conversation.turns[conversation.turns.length - 1];
  if (last !== undefined && last.state === 'running' && !app.runs.has(id)) {
    app.elsewhere = await isWrittenElsewhere(id);
    if (app.elsewhere) {
      waitForOther(id);
    } else {
      takeUnsaved(conversation, last);
      last.state = 'cut';
      last.problem = {message: 'The page was closed while this answer was being written.', status: 0, retryAfter: 0};
      await app.store.write(conversation);
    }
  }
  app.current = conversation;
  showConversation();
}

function showTitle() {
  const title = titleOf(app.current);
  part('title').textContent = app.current.turns.length === 0 ? '' : title;
  document.title = app.current.turns.length === 0 ? 'glint' : `${title} – glint`;
}

function showConversation() {
  const {current} = app;
  const hash = current.turns.length === 0 ? '' : `#${current.id}`;
  if (location.hash !== hash) history.pushState(null, '', hash || location.pathname);
  part('effort').value = current.settings.effort;
  part('prompt').value = preferences.get(`draft.${draftName()}`, 'session') || '';
  fitPrompt();
  closeDrawer();
  app.views.clear();
  part('turns').replaceChildren();
  showTurns();
  showTitle();
  showList();
  scrolling.pin();
}

const draftName = () => app.current.turns.length === 0 ? 'new' : app.current.id;

// Views of the turns that are there now; those of turns that stay are kept.
function showTurns() {
  const {turns} = app.current;
  for (const [id, view] of app.views) {
    if (turns.some((turn) => turn.id === id)) continue;
    view.root.remove();
    app.views.delete(id);
  }
  for (const turn of turns) {
    if (!app.views.has(turn.id)) {
      app.views.set(turn.id, turn.role === 'user' ? new UserView(turn, turnActions) : new AnswerView(turn, turnActions));
    }
  }
  turns.forEach((turn, at) => {  // one that is in its place stays untouched, with its focus and what is scrolled in it
    const {root} = app.views.get(turn.id);
    const there = part('turns').children[at];
    if (there !== root) part('turns').insertBefore(root, there || null);
  });
  part('welcome').hidden = turns.length > 0;
  document.body.classList.toggle('empty', turns.length === 0);
  showBusy();
}

const turnActions = {
  runOf: (turn) => {
    const run = app.current && app.runs.get(app.current.id);
    return run && run.turn === turn ? run : null;
  },
  elsewhere: () => app.elsewhere,
  countBelow: (turn) => app.current.turns.length - 1 - app.current.turns.indexOf(turn),
  resend: (turn, text) => replaceFrom(turn, [userTurn(text)]),
  retry: (turn) => replaceFrom(turn, []),
  enterKey: async (turn) => {
    if (await enterKey()) replaceFrom(turn, []);
  },
};

// The conversation goes on from before `turn` with `turns` and a new answer. What was there can be had back for a while.
function replaceFrom(turn, turns) {
  const conversation = app.current;
  const before = conversation.turns;
  const at = before.indexOf(turn);
  if (at < 0) return;
  stopRun(conversation.id);
  const dropped = before.slice(at).filter((old) => old.role === 'user' || old.content !== '' || old.reasoning !== '');
  conversation.turns = [...before.slice(0, at), ...turns];
  answer(conversation);
  const replaced = dropped.length - turns.length;
  if (replaced < 1) return;
  showToast(replaced === 1 ? 'The old answer was replaced.' : `${replaced} turns were replaced.`, 'Undo', () => {
    stopRun(conversation.id);
    conversation.turns = before;
    keepConversation(conversation);
    if (app.current === conversation) {
      showTurns();
      showTitle();
    } else {
      openConversation(conversation.id);
    }
  });
}

// ---- Answers

function send(text) {
  const conversation = app.current;
  if (text.trim() === '' || app.runs.has(conversation.id) || app.elsewhere) return;
  preferences.set(`draft.${draftName()}`, null, 'session');
  part('prompt').value = '';
  fitPrompt();
  conversation.turns.push(userTurn(text));
  answer(conversation);
}

// Begins an answer after the conversation's last turn.
function answer(conversation) {
  const turn = answerTurn();
  conversation.turns.push(turn);
  conversation.updated = Date.now();
  app.elsewhere = false;
  const run = new AnswerRun(conversation, turn, {
    model: async () => {
      if (app.models.length === 0) await loadModels();
      return app.model;
    },
    key: () => app.key,
    save: () => keepConversation(conversation),
    changed: () => painting.request(turn),
  });
  app.runs.set(conversation.id, run);
  preferences.set('settings', JSON.stringify(conversation.settings));
  if (location.hash !== `#${conversation.id}`) history.pushState(null, '', `#${conversation.id}`);
  showTurns();
  showTitle();
  scrolling.pin();
  keepConversation(conversation);
  announce('Sent');
  const end = run.run().then(() => finishRun(run));
  holdLock(conversation.id, end);
}

const ENDS = {done: 'The answer is complete', stopped: 'Stopped', cut: 'The answer broke off', failed: 'There is no answer'};

// Waits until what came is kept.
async function finishRun(run) {
  const {conversation, turn} = run;
  if (app.runs.get(conversation.id) === run) app.runs.delete(conversation.id);
  if (run.discarded) return;
  painting.now(turn);
  showBusy();
  putAside(run);
  const kept = keepConversation(conversation).then(() => preferences.set(`unsaved.${conversation.id}`, null));
  announce(turn.problem ? `${ENDS[turn.state]}: ${turn.problem.message}` : ENDS[turn.state]);
  if (turn.problem && turn.problem.status === 401 && app.current === conversation) turnActions.enterKey(turn);
  await kept;
}

function stopRun(id) {
  const run = app.runs.get(id);
  if (run === undefined) return;
  run.turn.state = 'stopped';
  run.discard();
  app.runs.delete(id);
}

function showBusy() {
  const busy = app.runs.has(app.current.id);
  const button = part('send');
  button.replaceChildren(icon(busy ? 'stop' : 'send'));
  const label = busy ? 'Stop the answer' : 'Send';
  button.setAttribute('aria-label', label);
  button.title = busy ? 'Stop the answer (Escape)' : 'Send (Enter)';
  button.classList.toggle('stop', busy);
  button.disabled = !busy && (part('prompt').value.trim() === '' || app.elsewhere);
}

function stopCurrent() {
  const run = app.runs.get(app.current.id);
  if (run !== undefined) run.stop();
}

// At most one update a frame, and a pause of four times what the last one took: a long answer leaves the page most of its time.
const painting = {
  turn: null,
  lastCost: 0,
  lastEnd: 0,
  request(turn) {
    if (app.current === null || !app.views.has(turn.id)) return;
    if (this.turn === null) requestAnimationFrame(() => this.frame());
    this.turn = turn;
  },
  frame() {
    if (this.turn === null) return;
    if (performance.now() < this.lastEnd + 4 * this.lastCost) {
      requestAnimationFrame(() => this.frame());
    } else {
      this.now(this.turn);
    }
  },
  now(turn) {
    this.turn = null;
    const view = app.views.get(turn.id);
    if (view === undefined) return;
    const begin = performance.now();
    view.update();
    scrolling.follow();
    this.lastEnd = performance.now();
    this.lastCost = this.lastEnd - begin;
  },
};

// The end stays in sight while it was: a reader who scrolled up is left alone.
const scrolling = {
  pinned: true,
  last: 0,
  area: () => part('scroll'),
  pin() {
    this.pinned = true;
    this.follow();
  },
  returnTo(place) {
    this.pinned = false;
    this.area().scrollTop = this.last = place;
    this.showButton();
  },
  follow() {
    const area = this.area();
    if (this.pinned) area.scrollTop = area.scrollHeight;
    this.last = area.scrollTop;
    this.showButton();
  },
  onScroll() {
    const area = this.area();
    const atEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 32;
    if (atEnd) {
      this.pinned = true;
    } else if (area.scrollTop < this.last - 1) {
      this.pinned = false;
    }
    this.last = area.scrollTop;
    this.showButton();
  },
  showButton() {
    const area = this.area();
    part('to-end').hidden = this.pinned || area.scrollHeight - area.scrollTop - area.clientHeight < 200;
  },
};

// ---- Frame

let fitPrompt = () => {};

function openDrawer() {
  document.body.classList.add('drawer');
  part('menu').setAttribute('aria-expanded', 'true');
  part('new-chat').focus();
}

function closeDrawer() {
  if (!document.body.classList.contains('drawer')) return;
  document.body.classList.remove('drawer');
  part('menu').setAttribute('aria-expanded', 'false');
  part('menu').focus();
}

function onKey(event) {
  if (event.key === 'Escape' && !event.defaultPrevented && document.querySelector('dialog[open]') === null) {
    if (document.body.classList.contains('drawer')) {
      closeDrawer();
    } else {
      stopCurrent();
    }
  }
}

function changeSettings(settings) {
  const {current} = app;
  current.settings = cleanSettings(settings);
  part('effort').value = current.settings.effort;
  preferences.set('settings', JSON.stringify(current.settings));
  if (current.turns.length > 0) keepConversation(current);
}

// What came since the last save would be lost with a page that goes away: a database does not finish in time, local storage does.
function putAside({conversation, turn}) {
  const {id, content, reasoning, thoughtMs} = turn;
  preferences.set(`unsaved.${conversation.id}`, JSON.stringify({id, content, reasoning, thoughtMs}));
}

function saveRunning() {
  for (const run of app.runs.values()) {
    putAside(run);
    app.store.write(run.conversation);
  }
}

// The end of an answer that was put aside.
function takeUnsaved(conversation, turn) {
  try {
    const unsaved = JSON.parse(preferences.get(`unsaved.${conversation.id}`));
    if (unsaved !== null && unsaved.id === turn.id && unsaved.content.startsWith(turn.content) && unsaved.reasoning.startsWith(turn.reasoning)) {
      Object.assign(turn, {content: unsaved.content, reasoning: unsaved.reasoning, thoughtMs: countOr(unsaved.thoughtMs, 0)});
    }
  } catch { /* not ours */ }
  preferences.set(`unsaved.${conversation.id}`, null);
}

function connectFrame() {
  const prompt = part('prompt');
  fitPrompt = growWithText(prompt);
  const form = part('composer');
  for (const [id, name] of [['new-chat-icon', 'plus'], ['menu', 'menu'], ['to-end', 'down'], ['settings-icon', 'sliders'], ['settings-top', 'sliders'], ['new-top', 'plus']]) {
    part(id).append(icon(name));
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!app.runs.has(app.current.id)) send(prompt.value);
  });
  part('send').addEventListener('click', (event) => {
    if (!app.runs.has(app.current.id)) return;  // the form is submitted
    event.preventDefault();
    stopCurrent();
  });
  prompt.addEventListener('keydown', (event) => sendOnEnter(event, form));
  prompt.addEventListener('input', () => {
    preferences.set(`draft.${draftName()}`, prompt.value || null, 'session');
    showBusy();
  });
  const effort = effortSelect('', (value) => changeSettings({...app.current.settings, effort: value}));
  effort.id = 'effort';
  part('effort-place').append(effort);
  part('model').addEventListener('change', () => {
    app.model = part('model').value;
    preferences.set('model', app.model);
  });
  const settings = () => openSettings({...app.current.settings}, {onChange: changeSettings, data: dataButtons});
  part('settings').addEventListener('click', settings);
  part('settings-top').addEventListener('click', settings);
  for (const id of ['new-chat', 'new-top']) part(id).addEventListener('click', startConversation);
  part('theme').addEventListener('click', nextTheme);
  part('menu').addEventListener('click', openDrawer);
  part('shade').addEventListener('click', closeDrawer);
  part('to-end').addEventListener('click', () => {
    scrolling.pin();
    prompt.focus();
  });
  part('scroll').addEventListener('scroll', () => scrolling.onScroll(), {passive: true});
  window.addEventListener('resize', () => scrolling.follow());
  document.addEventListener('keydown', onKey);
  document.addEventListener('visibilitychange', () => { if (document.hidden) saveRunning(); });
  window.addEventListener('pagehide', saveRunning);
  window.addEventListener('popstate', () => {
    const id = location.hash.slice(1);
    if (id !== '' && id !== app.current.id) openConversation(id);
    if (id === '' && app.current.turns.length > 0) startConversation();
  });
  if (app.channel !== null) app.channel.addEventListener('message', hearOthers);
}

async function start() {
  applyTheme();
  connectFrame();
  app.current = newConversation(storedSettings());
  await app.store.open();
  await refreshList();
  const id = location.hash.slice(1);
  if (id === '') {
    showConversation();
    part('prompt').focus();
  } else {
    await openConversation(id);
  }
  document.documentElement.dataset.ready = '';
  findServer();
}

start();
