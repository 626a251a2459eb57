// Markdown to elements. What the model wrote becomes text nodes inside elements named here; there is no way from a character of it to
// markup, an attribute other than a checked link's, or a request. Work is bounded: every scan is linear or has a limit, nesting too.

const DEEPEST = 12;            // containers in containers; what is deeper stays text
const MOST_DELIMITERS = 2000;  // of emphasis and brackets in one paragraph; the rest stays text
const DEEPEST_EMPHASIS = 12;
const LONGEST_TARGET = 4096;   // characters of a link

// ---- Blocks: lines to a tree

const FENCE = /^( *)(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)(?=\S)|[ \t]*$)/;
const DELIMITER_ROW = /^\|? *:?-+:?(?: *\| *:?-+:?)* *\|?$/;  // trimmed

const isBlank = (line) => line.trim() === '';
const indentOf = (line) => line.length - line.trimStart().length;

function fenceOf(line) {
  const match = FENCE.exec(line);
  if (match === null || (match[2][0] === '`' && match[3].includes('`'))) return null;
  return {indent: match[1].length, mark: match[2], language: match[3].trim().split(/\s/)[0].toLowerCase()};
}

function closesFence(line, fence) {
  const text = line.trim();
  return text.length >= fence.mark.length && text[0] === fence.mark[0] && [...text].every((c) => c === fence.mark[0]);
}

// {indent, width (to the item's text), kind ('-', '*', '+', '.' or ')'), start (of numbers)}
function itemOf(line) {
  if (RULE.test(line)) return null;
  const match = ITEM.exec(line);
  if (match === null) return null;
  const [, indent, mark, gap] = match;
  const spaces = gap === undefined || gap.length > 4 ? 1 : gap.length;
  return {
    indent: indent.length,
    width: indent.length + mark.length + spaces,
    kind: mark[mark.length - 1],
    start: mark.length > 1 ? parseInt(mark, 10) : null,
    empty: gap === undefined,
  };
}

function startsTable(line, next) {
  if (next === undefined || !line.includes('|') || !next.includes('-') || !DELIMITER_ROW.test(next.trim())) return false;
  return cellsOf(line).length === cellsOf(next).length;
}

// What ends a paragraph without a blank line. A number other than 1 in running text is no list.
function interrupts(lines, at) {
  const line = lines[at];
  if (fenceOf(line) !== null || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = itemOf(line);
  if (item !== null && !item.empty && (item.start === null || item.start === 1)) return true;
  return startsTable(line, lines[at + 1]);
}

// Cells of a table's row: cut at bars that are neither escaped nor inside code.
function cellsOf(line) {
  const text = line.trim();
  const cells = [];
  let cell = '';
  let code = false;
  const closed = text.split('`').length % 2 === 1;
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '\\' && text[i + 1] === '|') {
      cell += '|';
      ++i;
    } else if (text[i] === '|' && !code) {
      cells.push(cell.trim());
      cell = '';
    } else {
      if (text[i] === '`' && closed) code = !code;
      cell += text[i];
    }
  }
  cells.push(cell.trim());
  if (text.startsWith('|')) cells.shift();
  if (cells.length > 1 && cells[cells.length - 1] === '') cells.pop();
  return cells;
}

// Blocks in order, each with `from`, the line where it begins. A block's extent depends on the lines up to the first of the next block
// alone (and, of a table, one more), which MarkdownView builds on.
function parseBlocks(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (isBlank(line)) {
      ++at;
      continue;
    }
    const from = at;
    const fence = fenceOf(line);
    const heading = HEADING.exec(line);
    const item = itemOf(line);
    if (fence !== null) {
      const text = [];
      let closed = false;
      for (++at; at < lines.length && !closed; ++at) {
        closed = closesFence(lines[at], fence);
        if (!closed) text.push(lines[at].slice(Math.min(fence.indent, indentOf(lines[at]))));
      }
      blocks.push({kind: 'code', from, language: fence.language, text: text.join('\n'), closed});
    } else if (heading !== null) {
      const text = line.slice(heading[0].length).trim().replace(/(?:^|[ \t])#+$/, '').trimEnd();
      blocks.push({kind: 'heading', from, level: heading[1].length, text});
      ++at;
    } else if (RULE.test(line)) {
      blocks.push({kind: 'rule', from});
      ++at;
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      const inner = [];
      for (; at < lines.length && QUOTE.test(lines[at]); ++at) inner.push(lines[at].replace(QUOTE, ''));
      blocks.push({kind: 'quote', from, blocks: parseBlocks(inner, depth + 1)});
    } else if (depth < DEEPEST && item !== null) {
      const list = parseList(lines, at, item, depth);
      blocks.push({...list, from});
      at = list.to;
    } else if (startsTable(line, lines[at + 1])) {
      const aligned = cellsOf(lines[at + 1]).map((cell) =>
          cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left');
      const rows = [];
      for (at += 2; at < lines.length && !isBlank(lines[at]) && !interrupts(lines, at); ++at) rows.push(cellsOf(lines[at]));
      blocks.push({kind: 'table', from, head: cellsOf(line), aligned, rows});
    } else {
      const text = [line.trimStart()];
      for (++at; at < lines.length && !isBlank(lines[at]) && !interrupts(lines, at); ++at) text.push(lines[at].trimStart());
      blocks.push({kind: 'paragraph', from, text: text.join('\n')});
    }
  }
  return blocks;
}

// A list from line `at`: items of one kind of mark. Lines indented to an item's text are the item's; so are nested items that are
// indented by two, less than the text of "10. " is, as models write them.
function parseList(lines, at, first, depth) {
  const items = [];
  let loose = false;
  let item = first;
  while (item !== null) {
    const inner = [lines[at].slice(item.width)];
    let blank = false;  // the line before was
    let fence = fenceOf(inner[0]);
    let next = null;  // the item after this one
    for (++at; at < lines.length; ++at) {
      const line = lines[at];
      if (isBlank(line)) {
        inner.push('');
        blank = true;
        continue;
      }
      const indent = indentOf(line);
      const other = fence === null || indent < item.width ? itemOf(line) : null;
      const nested = other !== null && indent >= item.indent + 2;
      if (indent >= item.width || nested) {
        if (blank && !nested && fence === null) loose = true;
      } else if (other !== null) {
        if (other.kind === first.kind) next = other;
        break;
      } else if (blank || fence !== null || interrupts(lines, at)) {
        break;
      }
      const text = line.slice(Math.min(indent, item.width));
      if (fence !== null) {
        if (closesFence(text, fence)) fence = null;
      } else {
        fence = fenceOf(text);
      }
      inner.push(text);
      blank = false;
    }
    if (next !== null && blank) loose = true;
    items.push(itemBlocks(inner, depth));
    item = next;
  }
  return {kind: 'list', start: first.start, loose, items, to: at};
}

function itemBlocks(lines, depth) {
  const task = /^\[([ xX])\] +/.exec(lines[0]);
  if (task !== null) lines[0] = lines[0].slice(task[0].length);
  return {task: task === null ? null : task[1] !== ' ', blocks: parseBlocks(lines, depth + 1)};
}

// ---- Inline: a paragraph's text to nodes

// An address that may be followed by a click: http or https, absolute. Else null.
function safeLink(target) {
  if (!/^https?:\/\//i.test(target)) return null;
  try {
    const url = new URL(target);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}

function linkTo(href, children) {
  return el('a', {href, title: href, target: '_blank', rel: 'noopener noreferrer nofollow'}, children);
}

const SPECIAL = /[\\`*_~[\]!<&\n$]|https?:\/\//g;
const BARE_LINK = /https?:\/\/[!#-;=?-Z\]_a-z~[]{1,4096}/y;
const ENTITY = /&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6}));/y;
const NAMED = {amp: '&', lt: '<', gt: '>', quot: '"', apos: '\'', nbsp: '\u00a0'};
const PUNCTUATION = /[\p{P}\p{S}]/u;
// Scripts that put no spaces between words have emphasis anywhere, beside their punctuation too.
const WORD = /(?![\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef])[\p{L}\p{N}]/u;

// Pieces of a paragraph while it is read: strings, nodes, and marks {mark, count, opens, closes} of emphasis that may still be text.
class InlineParser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.pieces = [];
    this.brackets = [];  // {piece, at, image, active}
    this.delimiters = 0;
    this.noRun = new Map();  // code: no run of that many backticks is left
    this.noMath = new Set();
  }

  parse() {
    const {text} = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const match = SPECIAL.exec(text);
      const next = match === null ? text.length : match.index;
      if (next > this.at) this.pieces.push(text.slice(this.at, next));
      this.at = next;
      if (match !== null && !this.special(match[0])) {
        this.pieces.push(text[this.at]);
        ++this.at;
      }
    }
    return this.finish(0);
  }

  // True if something was taken.
  special(mark) {
    switch (mark) {
      case '\\': return this.escape();
      case '`': return this.code();
      case '*': case '_': case '~': return this.emphasis(mark);
      case '[': return this.open(false);
      case '!': return this.text[this.at + 1] === '[' && this.open(true);
      case ']': return this.close();
      case '<': return this.angle();
      case '&': return this.entity();
      case '$': return this.text[this.at + 1] === '$' && this.math('$$', '$$');
      case '\n': return this.lineEnd();
      default: return this.bareLink();
    }
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === '(' && this.math('\\(', '\\)')) return true;
    if (next === '[' && this.math('\\[', '\\]')) return true;
    if (next === '\n') {
      this.pieces.push(el('br'));
    } else if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) {
      this.pieces.push(next);
    } else {
      return false;
    }
    this.at += 2;
    return true;
  }

  // Formulas stay what they are: nothing here sets them, but their stars and underscores are no emphasis.
  math(begin, end) {
    if (this.noMath.has(end)) return false;
    const to = this.text.indexOf(end, this.at + begin.length);
    if (to < 0) {
      this.noMath.add(end);
      return false;
    }
    this.pieces.push(el('span.math', {}, this.text.slice(this.at, to + end.length)));
    this.at = to + end.length;
    return true;
  }

  code() {
    const {text} = this;
    let from = this.at;
    while (text[from] === '`') ++from;
    const length = from - this.at;
    if (!this.noRun.has(length)) {
      for (let to = text.indexOf('`', from); to >= 0;) {
        let past = to;
        while (text[past] === '`') ++past;
        if (past - to === length) {
          let inner = text.slice(from, to).replace(/\n/g, ' ');
          if (inner.length > 2 && inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '') inner = inner.slice(1, -1);
          this.pieces.push(el('code', {}, inner));
          this.at = past;
          return true;
        }
        to = text.indexOf('`', past);
      }
      this.noRun.set(length, true);
    }
    this.pieces.push(text.slice(this.at, from));
    this.at = from;
    return true;
  }

  emphasis(mark) {
    const {text} = this;
    let to = this.at;
    while (text[to] === mark) ++to;
    const count = to - this.at;
    const before = this.at === 0 ? ' ' : text[this.at - 1];
    const after = to === text.length ? ' ' : text[to];
    if (++this.delimiters > MOST_DELIMITERS || (mark === '~' && count !== 2)) {
      this.pieces.push(text.slice(this.at, to));
      this.at = to;
      return true;
    }
    const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before) || !WORD.test(before));
    const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after) || !WORD.test(after));
    const opens = mark === '_' ? left && (!right || PUNCTUATION.test(before)) : left;
    const closes = mark === '_' ? right && (!left || PUNCTUATION.test(after)) : right;
    this.pieces.push({mark, count, opens, closes});
    this.at = to;
    return true;
  }

  open(image) {
    if (++this.delimiters > MOST_DELIMITERS) return false;
    this.brackets.push({piece: this.pieces.length, image, active: true});
    this.pieces.push(image ? '![' : '[');
    this.at += image ? 2 : 1;
    return true;
  }

  close() {
    const bracket = this.brackets.pop();
    if (bracket === undefined || !bracket.active) return false;
    const target = this.target();
    if (target === null) return false;
    const children = this.finish(bracket.piece + 1);
    this.pieces.length = bracket.piece;
    const href = safeLink(target.address);
    if (bracket.image) {
      const alt = children.map((child) => typeof child === 'string' ? child : child.textContent).join('');
      this.pieces.push(el('span.picture', {}, `Image: ${alt === '' ? 'without a description' : alt} `,
                          href === null ? `(${target.address})` : linkTo(href, target.address)));
    } else if (href === null) {  // shown whole, so that nothing hides behind the text
      this.pieces.push(el('span', {}, children, ` (${target.address})`));
    } else {
      this.pieces.push(linkTo(href, children));
      for (const outer of this.brackets) outer.active = outer.image;  // no link in a link
    }
    this.at = target.to;
    return true;
  }

  // "(address "title")" after the bracket at `at`.
  target() {
    const {text} = this;
    let at = this.at + 1;
    if (text[at] !== '(') return null;
    const end = Math.min(text.length, at + LONGEST_TARGET);
    ++at;
    while (at < end && /\s/.test(text[at])) ++at;
    let from = at;
    let address = '';
    if (text[at] === '<') {
      while (at < end && text[at] !== '>' && text[at] !== '\n') ++at;
      if (text[at] !== '>') return null;
      address = text.slice(from + 1, at++);
    } else {
      for (let depth = 0; at < end && !/\s/.test(text[at]); ++at) {
        if (text[at] === '(') ++depth;
        if (text[at] === ')' && --depth < 0) break;
      }
      address = text.slice(from, at);
    }
    while (at < end && /\s/.test(text[at])) ++at;
    const quote = text[at];
    if (quote === '"' || quote === '\'') {  // a title is not shown
      for (++at; at < end && text[at] !== quote; ++at) {}
      ++at;
      while (at < end && /\s/.test(text[at])) ++at;
    }
    if (at >= end || text[at] !== ')') return null;
    return {address, to: at + 1};
  }

  // <https://...> and <br>; all else in angles is text.
  angle() {
    const near = this.text.slice(this.at, this.at + LONGEST_TARGET);
    const length = near.indexOf('>');
    if (length < 0) return false;
    const inner = near.slice(1, length);
    const href = /\s/.test(inner) ? null : safeLink(inner);
    if (href !== null) {
      this.pieces.push(linkTo(href, inner));
    } else if (/^br *\/?$/i.test(inner)) {
      this.pieces.push(el('br'));
    } else {
      return false;
    }
    this.at += length + 1;
    return true;
  }

  entity() {
    ENTITY.lastIndex = this.at;
    const match = ENTITY.exec(this.text);
    if (match === null) return false;
    const code = match[2] ? parseInt(match[2], 10) : parseInt(match[3], 16);
    const valid = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
    this.pieces.push(match[1] ? NAMED[match[1]] : valid ? String.fromCodePoint(code) : '\ufffd');
    this.at += match[0].length;
    return true;
  }

  lineEnd() {
    const last = this.pieces[this.pieces.length - 1];
    if (typeof last === 'string' && last.endsWith('  ')) {
      this.pieces[this.pieces.length - 1] = last.trimEnd();
      this.pieces.push(el('br'));
    } else {
      this.pieces.push('\n');
    }
    ++this.at;
    return true;
  }

  // Ends before punctuation that a sentence puts after it, and before a closing bracket that it did not open.
  bareLink() {
    const {text} = this;
    const inWord = this.at > 0 && WORD.test(text[this.at - 1]);
    BARE_LINK.lastIndex = this.at;
    const match = BARE_LINK.exec(text);
    if (inWord || match === null || match[0].length >= LONGEST_TARGET || this.brackets.some((b) => b.active && !b.image)) {
      const scheme = text.startsWith('https', this.at) ? 'https' : 'http';
      this.pieces.push(scheme);
      this.at += scheme.length;
      return true;
    }
    let link = match[0];
    let surplus = 0;
    for (const c of link) surplus += c === ')' ? 1 : c === '(' ? -1 : 0;
    for (;;) {
      const last = link[link.length - 1];
      if (/[.,;:!?*_~'\][]/.test(last)) {
        link = link.slice(0, -1);
      } else if (last === ')' && surplus > 0) {
        link = link.slice(0, -1);
        --surplus;
      } else {
        break;
      }
    }
    const href = safeLink(link);
    this.pieces.push(href === null ? link : linkTo(href, link));
    this.at += link.length;
    return true;
  }

  // The pieces from `from` on as nodes, emphasis resolved: a mark that closes takes the nearest one before it that opens.
  finish(from) {
    const pieces = this.pieces.splice(from);
    const out = [];
    const depths = new Map();
    const openers = {'*': [], '_': [], '~': []};  // indices in `out`
    for (const piece of pieces) {
      if (typeof piece === 'string' || piece instanceof Node) {
        out.push(piece);
        continue;
      }
      const mark = {...piece};
      const stack = openers[mark.mark];
      while (mark.closes && mark.count > 0 && stack.length > 0) {
        const opener = out[stack[stack.length - 1]];
        const use = mark.mark === '~' ? 2 : Math.min(2, opener.count, mark.count);
        const at = stack[stack.length - 1];
        const deep = 1 + out.slice(at + 1).reduce((most, inner) => Math.max(most, depths.get(inner) || 0), 0);
        if (deep > DEEPEST_EMPHASIS) break;
        const inner = out.splice(at + 1).map(markText);
        for (const other of Object.values(openers)) {
          while (other.length > 0 && other[other.length - 1] > at) other.pop();
        }
        const tag = mark.mark === '~' ? 'del' : use === 2 ? 'strong' : 'em';
        opener.count -= use;
        mark.count -= use;
        if (opener.count === 0) {
          out.pop();
          stack.pop();
        }
        const element = el(tag, {}, inner);
        depths.set(element, deep);
        out.push(element);
      }
      if (mark.count === 0) continue;
      if (mark.opens) stack.push(out.length);
      out.push(mark);
    }
    return out.map(markText);
  }
}

function markText(piece) {
  return typeof piece === 'string' || piece instanceof Node ? piece : piece.mark.repeat(piece.count);
}

function inline(text) {
  return new InlineParser(text).parse();
}

// ---- Blocks to elements

// Headings of an answer stand below the page's own.
function renderBlock(block) {
  switch (block.kind) {
    case 'heading': return el(`h${Math.min(6, block.level + 2)}.level-${block.level}`, {}, inline(block.text));
    case 'rule': return el('hr');
    case 'quote': return el('blockquote', {}, block.blocks.map(renderBlock));
    case 'code': return renderCode(block);
    case 'table': return renderTable(block);
    case 'list': return renderList(block);
    default: return el('p', {}, inline(block.text));
  }
}

function renderCode(block) {
  const code = el('code');
  if (block.closed) {
    highlightInto(code, block.text, block.language);
  } else {
    block.growing = new GrowingCode(code, block.text, block.language);
  }
  const language = /^[\w+#.-]{1,24}$/.test(block.language) ? block.language : '';
  return el('figure.code', {},
            el('figcaption', {}, el('span', {}, language || 'code'), copyButton('Copy code', () => code.textContent)),
            el('pre', {tabindex: '0', 'aria-label': `Code${language ? `, ${language}` : ''}`, role: 'region'}, code));
}

function renderTable(block) {
  const row = (cells, tag) =>
      el('tr', {}, block.head.map((_, i) => el(`${tag}.${block.aligned[i]}`, tag === 'th' ? {scope: 'col'} : {}, inline(cells[i] || ''))));
  return el('div.table', {tabindex: '0', role: 'region', 'aria-label': 'Table'},
            el('table', {}, el('thead', {}, row(block.head, 'th')), el('tbody', {}, block.rows.map((cells) => row(cells, 'td')))));
}

function renderList(block) {
  const items = block.items.map((item) => {
    const children = item.blocks.flatMap((b) => !block.loose && b.kind === 'paragraph' ? inline(b.text) : [renderBlock(b)]);
    if (item.task === null) return el('li', {}, children);
    const box = el('input', {type: 'checkbox', disabled: true, checked: item.task, 'aria-label': item.task ? 'Done' : 'Open'});
    return el('li.task', {}, box, children);
  });
  const spaced = block.loose ? '.loose' : '';
  if (block.start === null) return el(`ul${spaced}`, {}, items);
  return el(`ol${spaced}`, {start: block.start === 1 ? null : String(block.start)}, items);
}

// Text that grows, as elements. Only what can still change is made again: the last block, and the one before it while it is open whether
// the last one's first line, not complete yet, goes on with it. The result does not depend on the pieces in which the text came.
class MarkdownView {
  constructor(root) {
    this.root = root;
    this.source = '';
    this.settled = 0;  // characters whose blocks stay as they are
    this.open = [];    // elements of the others
    this.code = null;  // the block of an unclosed fence alone at the end, which grows by its text
  }

  set(text) {
    if (text === this.source) return;
    if (!text.startsWith(this.source)) {
      this.root.replaceChildren();
      this.settled = 0;
      this.open = [];
    }
    this.source = text;
    const lines = text.slice(this.settled).split('\n');
    const blocks = parseBlocks(lines);
    if (this.growCode(blocks)) return;
    let keep = blocks.length === 0 ? 0 : blocks.length - 1;  // blocks before this one are settled now
    if (keep > 0 && blocks[keep].from === lines.length - 1) --keep;
    for (const element of this.open) element.remove();
    const elements = blocks.map(renderBlock);
    for (const element of elements) this.root.append(element);
    this.open = elements.slice(keep);
    for (let i = 0; keep > 0 && i < blocks[keep].from; ++i) this.settled += lines[i].length + 1;
    this.code = this.open.length === 1 && blocks[keep].kind === 'code' && !blocks[keep].closed ? blocks[keep] : null;
  }

  // The common long case: program text. What is not made again keeps the reader's selection, too.
  growCode(blocks) {
    const block = blocks[0];
    const before = this.code;
    if (before === null || blocks.length !== 1 || block.kind !== 'code' || block.closed || before.text === '' || !block.text.startsWith(before.text)) return false;
    before.growing.set(block.text);
    this.code = {...block, growing: before.growing};
    return true;
  }
}
