// Colours for code: comments, strings, numbers and words of the language. A guess by patterns; it moves no character.

const WORDS = new Set((
  'abstract and as assert async await begin bool boolean break case catch char class const constexpr continue crate def default defer del ' +
  'delete do done double elif else elsif end enum except export extends extern false False fi final finally float fn for foreach from fun ' +
  'func function global go goto if impl implements import in include inline instanceof int interface is lambda let long loop match mod ' +
  'module mut namespace new nil none None nonlocal not null nullptr or override package pass private protected pub public raise return self ' +
  'short signed sizeof static struct super switch template then this throw trait true True try type typedef typename union unless unsigned ' +
  'until use using var virtual void volatile when where while with yield ' +
  'select insert update delete create table join left right inner outer on group by order having limit values into set primary key').split(' '));
const SQL = new Set(['sql', 'sqlite', 'postgresql', 'mysql']);
const HASH_COMMENTS = new Set(['python', 'py', 'sh', 'bash', 'shell', 'zsh', 'ruby', 'rb', 'yaml', 'yml', 'toml', 'ini', 'perl', 'r', 'cmake',
                               'make', 'makefile', 'dockerfile', 'elixir', 'julia', 'nix']);
const DASH_COMMENTS = new Set([...SQL, 'lua', 'haskell', 'hs', 'elm', 'ada']);
const SLASH_COMMENTS = new Set(['c', 'cc', 'cpp', 'c++', 'h', 'hpp', 'cuda', 'cu', 'java', 'js', 'javascript', 'jsx', 'ts', 'typescript', 'tsx',
                                'go', 'rust', 'rs', 'swift', 'kotlin', 'kt', 'scala', 'cs', 'csharp', 'php', 'dart', 'zig', 'css', 'scss', 'json',
                                'jsonc', 'json5', 'glsl', 'proto', 'groovy', 'objc']);
const LONGEST_COLOURED = 60000;  // characters

// Each alternative is linear in what it takes: no repetition inside a repetition.
function tokenPattern(language) {
  let comment = null;
  if (HASH_COMMENTS.has(language)) comment = '#[^\\n]*';
  if (DASH_COMMENTS.has(language)) comment = '--[^\\n]*';
  if (SLASH_COMMENTS.has(language)) comment = '\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)';
  if (comment === null) return null;
  const string = '"""[^]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"|\'(?:[^\'\\\\\\n]|\\\\.)*\'|`(?:[^`\\\\]|\\\\.)*`';
  return new RegExp(`(${comment})|(${string})|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, 'g');
}

function colouredPieces(text, language, pattern) {
  let plain = 0;  // where the text not yet taken begins
  const pieces = [];
  for (const match of text.matchAll(pattern)) {
    const kind = match[1] ? 'comment' : match[2] ? 'string' : match[3] ? 'number' : 'word';
    const word = SQL.has(language) ? match[0].toLowerCase() : match[0];
    if (kind === 'word' && !WORDS.has(word)) continue;
    if (match.index > plain) pieces.push(text.slice(plain, match.index));
    pieces.push(el(`span.code-${kind}`, {}, match[0]));
    plain = match.index + match[0].length;
  }
  pieces.push(text.slice(plain));
  return pieces;
}

function highlightInto(code, text, language) {
  const pattern = text.length <= LONGEST_COLOURED ? tokenPattern(language) : null;
  code.replaceChildren();
  for (const piece of pattern === null ? [text] : colouredPieces(text, language, pattern)) code.append(piece);
}

// Program text while it is written: whole lines get their colours, each once; what follows the last of them is one text node. A comment
// or string over several lines is guessed wrong until the block is complete and coloured anew.
class GrowingCode {
  constructor(code, text, language) {
    this.code = code;
    this.language = language;
    this.pattern = tokenPattern(language);
    this.done = 0;  // characters of whole lines
    this.rest = document.createTextNode('');
    code.replaceChildren(this.rest);
    this.set(text);
  }

  set(text) {
    const end = this.pattern === null || text.length > LONGEST_COLOURED ? this.done : text.lastIndexOf('\n') + 1;
    if (end > this.done) {
      for (const piece of colouredPieces(text.slice(this.done, end), this.language, this.pattern)) this.rest.before(piece);
      this.done = end;
    }
    this.rest.data = text.slice(this.done);
  }
}
