// Conversations in the browser (IndexedDB): their heads, which the list shows, and their bodies, apart, so that the list of hundreds is read
// at once. Where the browser keeps nothing (private windows, storage forbidden or full), they live as long as the page, and the page
// says so.

function promiseOf(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const headOf = ({id, title, created, updated, turns}, shown) => ({id, title, created, updated, shown, turns: turns.length});

class Store {
  // `onTrouble(sentence)`: something is not kept; null: all is kept again.
  constructor(onTrouble) {
    this.onTrouble = onTrouble;
    this.database = null;
    this.memory = new Map();  // id to conversation: those that the browser did not take
  }

  async open() {
    try {
      const request = indexedDB.open('glint', 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore('heads', {keyPath: 'id'});
        request.result.createObjectStore('bodies', {keyPath: 'id'});
      };
      this.database = await promiseOf(request);
      this.database.onversionchange = () => this.database.close();
    } catch {
      this.onTrouble('This browser keeps nothing for this page: conversations are gone when it is closed. Export those you need.');
    }
  }

  transaction(mode) {
    const transaction = this.database.transaction(['heads', 'bodies'], mode);
    const complete = new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error || new Error('the browser gave the write up'));
    });
    return {heads: transaction.objectStore('heads'), bodies: transaction.objectStore('bodies'), complete};
  }

  // {id, title, created, updated, shown (the title to show), turns (their number)}, newest first.
  async heads() {
    const heads = new Map();
    if (this.database !== null) {
      for (const head of await promiseOf(this.transaction('readonly').heads.getAll())) heads.set(head.id, head);
    }
    for (const conversation of this.memory.values()) heads.set(conversation.id, headOf(conversation, titleOf(conversation)));
    return [...heads.values()].sort((a, b) => b.updated - a.updated);
  }

  // Null if there is none.
  async read(id) {
    if (this.memory.has(id)) return structuredClone(this.memory.get(id));
    if (this.database === null) return null;
    return await promiseOf(this.transaction('readonly').bodies.get(id)) || null;
  }

  async write(conversation) {
    if (this.database !== null) {
      try {
        const {heads, bodies, complete} = this.transaction('readwrite');
        heads.put(headOf(conversation, titleOf(conversation)));
        bodies.put(conversation);
        await complete;
        this.memory.delete(conversation.id);
        if (this.memory.size === 0) this.onTrouble(null);
        return;
      } catch (error) {
        const full = error.name === 'QuotaExceededError';
        this.onTrouble(full ? 'The browser has no room left for conversations: export what you need and delete some. What comes now is kept only while this page is open.' :
                              'The browser did not keep this conversation: it is here only while this page is open. Export it if you need it.');
      }
    }
    this.memory.set(conversation.id, structuredClone(conversation));
  }

  async remove(id) {
    this.memory.delete(id);
    if (this.database === null) return;
    const {heads, bodies, complete} = this.transaction('readwrite');
    heads.delete(id);
    bodies.delete(id);
    await complete;
  }
}

// Small things that are not conversations, in local or session storage; a browser that forbids them forgets them.
const preferences = {
  get(name, area = 'local') {
    try {
      return window[`${area}Storage`].getItem(`glint.${name}`);
    } catch {
      return null;
    }
  },
  set(name, value, area = 'local') {
    try {
      if (value === null) {
        window[`${area}Storage`].removeItem(`glint.${name}`);
      } else {
        window[`${area}Storage`].setItem(`glint.${name}`, value);
      }
    } catch { /* forgotten, then */ }
  },
};
