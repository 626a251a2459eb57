// One answer while it is written. The turn it fills belongs to its conversation and outlives this; what is only of the moment is here.

const SAVE_EVERY_MS = 1000;

class AnswerRun {
  // model(): the name to ask for, once it is known. save(): keeps the conversation. changed(): something to show.
  constructor(conversation, turn, {model, key, save, changed}) {
    Object.assign(this, {conversation, turn, model, key, save, changed});
    this.progress = null;  // {done, total} tokens of the prompt, while it is read
    this.pieces = 0;       // of text; about one a token
    this.firstAt = 0;      // when the first came
    this.answerAt = 0;     // when the reasoning was over
    this.abort = new AbortController();
    this.discarded = false;
  }

  // Tokens a second so far, by the pieces that came; 0: too few to say.
  rate() {
    const seconds = (performance.now() - this.firstAt) / 1000;
    return this.pieces > 8 && seconds > 0.3 ? (this.pieces - 1) / seconds : 0;
  }

  stop() {
    this.abort.abort();
  }

  // The conversation goes another way: what still comes is of no use.
  discard() {
    this.discarded = true;
    this.stop();
  }

  piece() {
    const now = performance.now();
    if (this.pieces++ === 0) this.firstAt = now;
    this.progress = null;
    this.changed();
    return now;
  }

  async run() {
    const {turn, conversation} = this;
    const request = () => requestOf(conversation, conversation.turns.indexOf(turn), this.modelName);
    let saved = '';
    const timer = setInterval(() => {
      const now = `${turn.reasoning.length} ${turn.content.length}`;
      if (now !== saved) this.save();
      saved = now;
    }, SAVE_EVERY_MS);
    try {
      this.modelName = await this.model();
      this.abort.signal.throwIfAborted();
      const outcome = await streamChat(request(), this.key(), this.abort.signal, {
        progress: (progress) => {
          this.progress = progress;
          this.changed();
        },
        reasoning: (text) => {
          const now = this.piece();
          turn.reasoning += text;
          turn.thoughtMs = now - this.firstAt;
        },
        content: (text) => {
          const now = this.piece();
          if (this.answerAt === 0) {
            this.answerAt = now;
            if (turn.reasoning !== '') turn.thoughtMs = now - this.firstAt;
          }
          turn.content += text;
        },
      });
      turn.state = 'done';
      turn.finish = outcome.finish;
      turn.usage = cleanUsage(outcome.usage);
      turn.timings = cleanTimings(outcome.timings);
    } catch (error) {
      this.fail(error);
    } finally {
      clearInterval(timer);
    }
    this.progress = null;
  }

  fail(error) {
    const {turn} = this;
    if (this.abort.signal.aborted) {
      turn.state = 'stopped';
      return;
    }
    const known = error instanceof ApiFailure;
    if (!known) console.error(error);
    turn.state = turn.content !== '' || turn.reasoning !== '' ? 'cut' : 'failed';
    turn.problem = {
      message: known ? error.message : `Something went wrong in this page: ${error.message}`,
      status: known ? error.status : 0,
      retryAfter: known && error.retryAfter > 0 ? Date.now() + error.retryAfter * 1000 : 0,  // when to try again
    };
  }
}
