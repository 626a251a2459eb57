// The settings of a conversation and the question for an API key.

function field(label, input, hint) {
  const id = `field-${newId()}`;
  input.id = id;
  const note = el('span.hint', {id: `${id}-hint`}, hint || '');
  input.setAttribute('aria-describedby', note.id);
  return el('div.field', {}, el('label', {for: id}, label), input, note);
}

function dialogHead(title, id, dialog) {
  return el('header', {}, el('h2', {id}, title), iconButton('close', 'Close', () => dialog.close()));
}

// Opens the dialog; what is typed holds at once if it is valid.
//   onChange(settings)   a conversation's settings changed
//   data                 buttons for what is kept in the browser
function openSettings(settings, {onChange, data}) {
  const dialog = el('dialog.settings', {'aria-labelledby': 'settings-title', onclose: () => dialog.remove()});
  const system = el('textarea', {rows: '4', placeholder: 'None'});
  system.value = settings.system;
  system.addEventListener('input', () => onChange({...settings, system: settings.system = system.value}));
  const effort = effortSelect(settings.effort, (value) => onChange({...settings, effort: settings.effort = value}));
  const numbers = SAMPLING.map((kind) => {
    const input = el('input', {type: 'text', inputmode: kind.integer ? 'numeric' : 'decimal', placeholder: 'Server\'s default', autocomplete: 'off'});
    const box = field(kind.label, input, kind.hint);
    input.value = settings[kind.key] === undefined ? '' : String(settings[kind.key]);
    input.addEventListener('input', () => {
      const text = input.value.trim().replace(',', '.');
      const number = Number(text);
      const bad = text !== '' && !(number >= kind.min && number <= kind.max && (!kind.integer || Number.isInteger(number)));
      input.setAttribute('aria-invalid', String(bad));
      box.querySelector('.hint').textContent = bad ? `${kind.integer ? 'A whole number' : 'A number'} from ${kind.min} to ${kind.max}` : kind.hint;
      if (bad) return;
      if (text === '') {
        delete settings[kind.key];
      } else {
        settings[kind.key] = number;
      }
      onChange({...settings});
    });
    return box;
  });
  dialog.append(
      dialogHead('Settings', 'settings-title', dialog),
      el('div.body', {},
         el('p.hint', {}, 'Of this conversation; the next new one begins with the same.'),
         field('System prompt', system), field('Reasoning', effort, 'how long the model may think before it answers'),
         el('div.grid', {}, ...numbers),
         el('h3', {}, 'In this browser'), el('div.row.wrap', {}, ...data(dialog))));
  document.body.append(dialog);
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
}

function effortSelect(value, onchange) {
  const select = el('select', {'aria-label': 'Reasoning', onchange: () => onchange(select.value)},
                    ...EFFORTS.map(([effort, label]) => el('option', {value: effort}, label)));
  select.value = value;
  return select;
}

// Gives {key, keep} or null.
function askForKey(wrong) {
  return new Promise((resolve) => {
    let result = null;
    const input = el('input', {type: 'password', autocomplete: 'off', spellcheck: 'false', required: true});
    const keep = el('input', {type: 'checkbox', id: 'keep-key'});
    const dialog = el('dialog.key', {
      'aria-labelledby': 'key-title',
      onclose: () => {
        dialog.remove();
        resolve(result);
      },
    });
    dialog.append(
        dialogHead('This server wants an API key', 'key-title', dialog),
        el('form.body', {
          onsubmit: (event) => {
            event.preventDefault();
            result = {key: input.value.trim(), keep: keep.checked};
            dialog.close();
          },
        },
        field('API key', input, wrong ? 'The server did not take the last one.' : 'The one that glint serve was started with.'),
        el('label.check', {for: 'keep-key'}, keep, 'Remember it in this browser, not only in this tab'),
        el('div.row.end', {}, el('button.plain', {type: 'button', onclick: () => dialog.close()}, 'Not now'),
           el('button.primary', {type: 'submit'}, 'Use it'))));
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
