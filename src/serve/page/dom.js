// Elements are built here and nowhere else: text becomes text nodes, never markup. The page's policy (page.cc) forbids the browser to
// parse HTML from strings at all.

// el('button.quiet', {type: 'button', onclick: f}, 'Copy', [node, node]). Properties that begin with "on" are listeners; true is an
// attribute without a value; false, null and undefined are left out.
function el(spec, properties = {}, ...children) {
  const [tag, ...classes] = spec.split('.');
  const element = document.createElement(tag);
  if (classes.length > 0) element.classList.add(...classes);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

const ICONS = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M8 8h8v8H8z',
  copy: 'M9 9h10v11H9zM15 9V5H5v11h4',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  retry: 'M19 6v5h-5M18.5 11A7 7 0 1 0 19 14',
  edit: 'M5 19l1-4L16 5l3 3L9 18z',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  save: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  open: 'M12 16V5M7 9l5-5 5 5M5 20h14',
  sliders: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2',
  moon: 'M19 14.5A8 8 0 0 1 9.5 5 8 8 0 1 0 19 14.5z',
  half: 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 4v16M12 8h3M12 12h8M12 16h3',
  down: 'M12 5v14M6 13l6 6 6-6',
  close: 'M6 6l12 12M18 6L6 18',
};

function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.classList.add('icon', `icon-${name}`);
  const path = document.createElementNS(space, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

// A button that shows an icon; its name is for those who do not see it, and its tooltip.
function iconButton(name, label, onclick, more = '') {
  return el(`button.icon-button${more}`, {type: 'button', 'aria-label': label, title: label, onclick}, icon(name));
}

// The clipboard interface exists only where the page came by HTTPS or from this machine; elsewhere a selection is copied.
async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { /* not allowed: the old way may be */ }
  }
  const area = el('textarea.offscreen', {readonly: true, 'aria-hidden': 'true'});
  area.value = text;
  const focused = document.activeElement;
  (document.querySelector('dialog[open]') || document.body).append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  if (focused) focused.focus();
  return copied;
}

function copyButton(label, text) {
  const button = iconButton('copy', label, async () => {
    const copied = await copyText(text());
    button.replaceChildren(icon(copied ? 'check' : 'close'));
    announce(copied ? 'Copied' : 'The browser did not allow copying');
    setTimeout(() => button.replaceChildren(icon('copy')), 1500);
  });
  return button;
}

// Says a sentence to those who listen to the page: starts and ends of answers, not their tokens.
function announce(sentence) {
  const region = document.getElementById('announcements');
  region.textContent = '';
  setTimeout(() => { region.textContent = sentence; }, 50);  // the same sentence twice is heard twice
}

function formatCount(n) {
  return Math.round(n).toLocaleString('en-US');
}
