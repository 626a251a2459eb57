// What a conversation looks like: one view a turn. A view is told that its turn changed, and looks itself at what did.

const seconds = (ms) => ms < 1000 ? 'a moment' : `${Math.round(ms / 1000)} s`;

class UserView {
  // actions: {resend(turn, text), countBelow(turn)}
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.root = el('li.turn.user');
    this.show();
  }

  show() {
    this.root.replaceChildren(
        el('h2.offscreen', {}, 'You'),
        el('div.said', {}, this.turn.content),
        el('div.tools', {},
           iconButton('edit', 'Edit this message', () => this.edit()),
           copyButton('Copy this message', () => this.turn.content)));
  }

  edit() {
    const area = el('textarea', {'aria-label': 'Edit the message', rows: '1'});
    area.value = this.turn.content;
    const below = this.actions.countBelow(this.turn);
    const cancel = () => {
      this.show();
      this.root.querySelector('.tools button').focus();
    };
    const form = el('form.edit', {
      onsubmit: (event) => {
        event.preventDefault();
        if (area.value.trim() !== '') this.actions.resend(this.turn, area.value);
      },
      onkeydown: (event) => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          cancel();
        }
        sendOnEnter(event, form);
      },
    }, area,
    el('div.row', {},
       el('span.note', {}, below === 0 ? '' : below === 1 ? 'Sending replaces the turn below.' : `Sending replaces the ${below} turns below.`),
       el('button.plain', {type: 'button', onclick: cancel}, 'Cancel'),
       el('button.primary', {type: 'submit'}, 'Send')));
    this.root.replaceChildren(el('h2.offscreen', {}, 'You'), form);
    growWithText(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

// Enter sends, Shift+Enter is a line end; while an input method composes a word, Enter is its own.
function sendOnEnter(event, form) {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  form.requestSubmit();
}

// A text area as high as its text, up to what the style sheet allows.
function growWithText(area) {
  const fit = () => {
    area.style.height = 'auto';
    area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
  };
  area.addEventListener('input', fit);
  fit();
  return fit;
}

class AnswerView {
  // actions: {retry(turn), enterKey(turn), runOf(turn) (its AnswerRun, while it is written here), elsewhere() (written in another tab)}
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.summary = el('summary', {});
    this.thoughtsText = el('div.prose');
    this.thoughts = el('details.thoughts', {hidden: true, ontoggle: () => this.update()}, this.summary, this.thoughtsText);
    this.text = el('div.prose');
    this.waiting = el('div.waiting', {hidden: true});
    this.problem = el('div.problem', {hidden: true});
    this.tools = el('div.tools');
    this.root = el('li.turn.answer', {}, el('h2.offscreen', {}, 'Answer'), this.thoughts, this.text, this.waiting, this.problem, this.tools);
    this.markdown = new MarkdownView(this.text);
    this.thoughtsMarkdown = new MarkdownView(this.thoughtsText);
    this.shownState = '';
    this.update();
  }

  update() {
    const {turn} = this;
    const run = this.actions.runOf(turn);
    this.root.setAttribute('aria-busy', String(turn.state === 'running'));
    this.updateThoughts();
    this.markdown.set(turn.content);
    this.updateWaiting(run);
    if (turn.state === 'running') {
      this.showTools(run);
    } else if (this.shownState !== turn.state) {
      this.showProblem();
      this.showTools(null);
    }
    this.shownState = turn.state;
  }

  updateThoughts() {
    const {turn} = this;
    this.thoughts.hidden = turn.reasoning === '';
    if (turn.reasoning === '') return;
    const thinking = turn.state === 'running' && turn.content === '';
    this.thoughts.classList.toggle('live', thinking);
    const title = thinking ? (turn.thoughtMs < 1000 ? 'Thinking' : `Thinking for ${seconds(turn.thoughtMs)}`) : `Thought for ${seconds(turn.thoughtMs)}`;
    if (this.summary.textContent !== title) this.summary.textContent = title;
    if (this.thoughts.open) this.thoughtsMarkdown.set(turn.reasoning);  // nobody reads them closed
  }

  // Before the first word: how far the prompt is.
  updateWaiting(run) {
    const {turn} = this;
    const empty = turn.content === '' && turn.reasoning === '';
    this.waiting.hidden = turn.state !== 'running' || (!empty && !this.actions.elsewhere());
    if (this.waiting.hidden) {
      this.waiting.replaceChildren();
      return;
    }
    if (this.actions.elsewhere()) {
      this.waiting.textContent = 'This answer is being written in another tab.';
      return;
    }
    const progress = run && run.progress;
    if (!progress || progress.total === 0) {
      if (this.waiting.firstChild === null || this.waiting.querySelector('progress')) {
        this.waiting.replaceChildren(el('span.dots', {role: 'img', 'aria-label': 'Waiting for the answer'}, el('i'), el('i'), el('i')));
      }
      return;
    }
    const words = `Reading the prompt: ${formatCount(progress.done)} of ${formatCount(progress.total)} tokens`;
    let bar = this.waiting.querySelector('progress');
    if (bar === null) {
      bar = el('progress', {'aria-label': 'Reading the prompt'});
      this.waiting.replaceChildren(el('span', {}), bar);
    }
    bar.max = progress.total;
    bar.value = progress.done;
    this.waiting.firstChild.textContent = words;
  }

  showProblem() {
    const {turn} = this;
    const words = turn.problem ? turn.problem.message : turn.finish === 'length' ? 'The answer stopped at its limit of tokens.' : '';
    this.problem.hidden = words === '';
    this.problem.classList.toggle('mild', turn.problem === null);
    if (words === '') return;
    const button = el('button.plain', {type: 'button', onclick: () => this.actions.retry(turn)}, 'Try again');
    if (turn.problem === null) {
      this.problem.replaceChildren(el('span', {}, words));
    } else if (turn.problem.status === 401) {
      this.problem.replaceChildren(el('span', {}, words), el('button.plain', {type: 'button', onclick: () => this.actions.enterKey(turn)}, 'Enter a key'));
    } else {
      this.problem.replaceChildren(el('span', {}, words), button);
      this.countDown(button);
    }
  }

  // The server said when it may have room again.
  countDown(button) {
    const left = Math.ceil((this.turn.problem.retryAfter - Date.now()) / 1000);
    button.disabled = left > 0;
    button.textContent = left > 0 ? `Try again in ${left} s` : 'Try again';
    if (left > 0 && (button.isConnected || !this.root.isConnected)) setTimeout(() => this.countDown(button), 250);
  }

  showTools(run) {
    const {turn} = this;
    if (turn.state === 'running') {
      const rate = run ? run.rate() : 0;
      const words = rate > 0 ? `${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s` : '';
      if (this.stats === undefined || this.stats.parentNode === null || this.tools.childElementCount !== 1) {
        this.stats = el('span.stats');
        this.tools.replaceChildren(this.stats);
      }
      if (this.stats.textContent !== words) this.stats.textContent = words;
      return;
    }
    this.tools.hidden = turn.state === 'failed';
    const retry = turn.state === 'done' ? 'Answer again' : 'Try again';  // after a problem, it has the button
    this.tools.replaceChildren(...[
      turn.content === '' ? null : copyButton('Copy the answer', () => turn.content),
      turn.problem ? null : iconButton('retry', retry, () => this.actions.retry(turn)),
      el('span.stats', {}, statsOf(turn)),
    ].filter((child) => child !== null));
  }
}

function statsOf(turn) {
  const parts = [];
  const {usage, timings} = turn;
  if (turn.state === 'stopped') parts.push('stopped');
  if (timings && timings.decode_ms > 0) {
    const rate = timings.decode_tokens / timings.decode_ms * 1000;
    parts.push(`${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`);
  }
  if (usage) {
    parts.push(`${formatCount(usage.completion_tokens)} tokens`);
    const cached = usage.prompt_tokens_details.cached_tokens;
    const reused = cached > 0 ? `, ${formatCount(cached)} reused` : '';
    parts.push(`prompt ${formatCount(usage.prompt_tokens)}${reused}`);
  }
  return parts.join(' · ');
}
