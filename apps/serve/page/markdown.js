/* SPDX-License-Identifier: Apache-2.0
 *
 * Markdown as DOM nodes, for text that nobody has vetted. A model's text goes into text nodes only; the one attribute that takes any of it is href, after
 * safeAddress. Nothing is fetched: an image becomes a link. HTML in the text stays visible as text.
 *
 * Understood: headings, paragraphs (each line break is kept), lists, quotes, tables, rules, fenced code; bold, italic, struck, code, links, bare addresses.
 * Time is linear in the text but for nesting, which is limited. */
'use strict';

const DEEPEST = 8; /* nesting of quotes and lists, and of emphasis; deeper is plain text */

/* An element with text or nodes inside. */
function make(tag, className, ...inside) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...inside);
  return node;
}

/* The address if it leads to the web, else null. */
function safeAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}

/* ---- lines to blocks ---- */

/* No pattern may try a long run of characters from each of its positions: a hostile line would take minutes. */
const FENCE = /^( {0,3})(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s(.*))?$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})([.)]))(?:\s+|$)/;
const TABLE_RULE = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;
const TAB = 4;

const isBlank = line => line.trim() === '';

/* Columns of white space before a line; a tab counts as four. */
function indentOf(line) {
  let at = 0, columns = 0;
  for (; line[at] === ' ' || line[at] === '\t'; at++) columns += line[at] === '\t' ? TAB : 1;
  return columns;
}

/* The line without its first columns, as far as they are white. */
function outdent(line, columns) {
  let at = 0;
  for (; columns > 0 && (line[at] === ' ' || line[at] === '\t'); at++) columns -= line[at] === '\t' ? TAB : 1;
  return line.slice(at);
}

function fenceOf(line) {
  const match = FENCE.exec(line);
  return match && !(match[2][0] === '`' && match[3].includes('`')) ? match : null;
}

function isTable(lines, at) {
  const [head, rule = ''] = lines.slice(at, at + 2);
  return head.includes('|') && rule.includes('-') && TABLE_RULE.test(rule.trim()) && cellsOf(head).length === cellsOf(rule).length;
}

/* Does a block other than a paragraph begin here? */
function begins(lines, at) {
  const line = lines[at];
  return fenceOf(line) || [HEADING, RULE, QUOTE, ITEM].some(pattern => pattern.test(line)) || isTable(lines, at);
}

/* Blocks of a text: [{kind, lines, ...}]. */
function blocksOf(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const block = readBlock(lines, at);
    block.lines = lines.slice(at, block.end);
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function readBlock(lines, at) {
  const line = lines[at];
  const fence = fenceOf(line);
  if (fence) return readFence(lines, at, fence);
  if (RULE.test(line)) return {kind: 'rule', end: at + 1};
  if (HEADING.test(line)) return {kind: 'heading', end: at + 1};
  if (QUOTE.test(line)) return {kind: 'quote', end: endOf(lines, at, next => QUOTE.test(lines[next]) || !begins(lines, next))};
  if (ITEM.test(line)) return readList(lines, at);
  if (isTable(lines, at)) return {kind: 'table', end: endOf(lines, at + 1, next => lines[next].includes('|'))};
  return {kind: 'paragraph', end: endOf(lines, at, next => !begins(lines, next))};
}

/* The first line after `at` that is blank or does not go on. */
function endOf(lines, at, goesOn) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && goesOn(end)) end++;
  return end;
}

function readFence(lines, at, [, indent, mark, info]) {
  const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end++;
  const code = lines.slice(at + 1, end).map(line => outdent(line, indent.length));
  return {kind: 'code', language: info.trim().split(/\s/)[0], code: code.join('\n'), end: Math.min(end + 1, lines.length)};
}

/* A list goes on over lines that are indented, over items of its own kind, and over lines that continue a paragraph. Items: lists of lines. */
function readList(lines, at) {
  const [, , bullet, number] = ITEM.exec(lines[at]);
  const inside = indentOf(lines[at]) + 2;
  const isItem = line => {
    const match = ITEM.exec(line);
    return match && !RULE.test(line) && Boolean(match[2]) === Boolean(bullet) && indentOf(line) < inside ? match[0] : null;
  };
  const items = [];
  let width = 0, end = at;
  for (; end < lines.length; end++) {
    const line = lines[end], mark = isItem(line);
    if (isBlank(line)) {
      if (!goesOnAfterBlank(lines, end, inside, isItem)) break;
      items.at(-1).push('');
    } else if (mark !== null) {
      items.push([line.slice(mark.length)]);
      width = mark.length;
    } else if (indentOf(line) >= inside) {
      items.at(-1).push(outdent(line, width));
    } else if (isBlank(lines[end - 1]) || begins(lines, end)) {
      break;
    } else {
      items.at(-1).push(line);
    }
  }
  return {kind: 'list', ordered: !bullet, start: Number(number || 1), items, end};
}

function goesOnAfterBlank(lines, at, inside, isItem) {
  while (at < lines.length && isBlank(lines[at])) at++;
  return at < lines.length && (indentOf(lines[at]) >= inside || isItem(lines[at]) !== null);
}

function cellsOf(line) {
  const inside = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inside.split(/(?<!\\)\|/).map(cell => cell.trim().replaceAll('\\|', '|'));
}

/* ---- blocks to nodes ---- */

const BLOCKS = {
  rule: () => make('hr'),
  heading(block) {
    const [, marks, text = ''] = HEADING.exec(block.lines[0]);
    return withInline(make(`h${marks.length}`), text.trim().replace(/(^|\s)#+$/, ''));
  },
  paragraph: block => withInline(make('p'), block.lines.join('\n').trim()),
  quote: (block, depth) => withBlocks(make('blockquote'), block.lines.map(line => line.replace(QUOTE, '')), depth + 1),
  list: listNode,
  table: tableNode,
  code: codeNode,
};

function blockNode(block, depth) {
  return depth > DEEPEST ? make('p', '', block.lines.join('\n')) : BLOCKS[block.kind](block, depth);
}

function withBlocks(parent, lines, depth) {
  parent.append(...blocksOf(lines).map(block => blockNode(block, depth)));
  return parent;
}

function listNode(block, depth) {
  const list = make(block.ordered ? 'ol' : 'ul');
  if (block.ordered && block.start !== 1) list.start = block.start;
  for (const lines of block.items) list.append(itemNode(lines, depth + 1));
  return list;
}

/* A paragraph at the beginning of an item needs no space of its own. */
function itemNode(lines, depth) {
  const item = make('li');
  blocksOf(lines).forEach((block, n) => {
    const node = blockNode(block, depth);
    item.append(...(n === 0 && block.kind === 'paragraph' ? node.childNodes : [node]));
  });
  return item;
}

function tableNode(block) {
  const [head, rule, ...rows] = block.lines;
  const sides = cellsOf(rule).map(cell => (/^:.*:$/.test(cell) ? 'center' : cell.endsWith(':') ? 'right' : ''));
  const row = (tag, line) => {
    const cells = cellsOf(line);
    return make('tr', '', ...sides.map((side, n) => withInline(make(tag, side), cells[n] || '')));
  };
  const body = make('tbody', '', ...rows.map(line => row('td', line)));
  return make('div', 'table', make('table', '', make('thead', '', row('th', head)), body));
}

function codeNode(block) {
  const copy = make('button', 'quiet', 'Copy');
  copy.type = 'button';
  copy.dataset.action = 'copy-code';
  copy.setAttribute('aria-label', 'Copy the code');
  return make('div', 'code', make('div', 'bar', make('span', '', block.language), copy), make('pre', '', make('code', '', block.code)));
}

/* ---- inline ---- */

const INLINE = /\\([!-\/:-@\[-`{-~])|(`+)|(\*{1,3}|_{1,3}|~~)|(!?\[)|<(https?:\/\/[^\s<>]+)>|(\bhttps?:\/\/[^\s<>`*|]+)|(\n)/g;
const TARGET = /\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
const LONGEST_LABEL = 300;
const EMPHASIS = {1: ['em'], 2: ['strong'], 3: ['strong', 'em']};

/* Appends a text with its inline marks. What does not come out as a mark stays as it was written. `inLink`: the text is a label, no further link in it. */
function withInline(parent, text, depth = 0, inLink = false) {
  const scan = {text, depth, inLink, hopeless: new Set() /* marks without an end in the rest of the text */};
  const plain = end => end > at && parent.append(text.slice(at, end));
  let at = 0;
  for (let from = 0; depth <= DEEPEST;) {
    INLINE.lastIndex = from;
    const match = INLINE.exec(text);
    if (!match) break;
    const found = readMark(scan, match);
    from = match.index + match[0].length;
    if (!found) continue;
    plain(match.index);
    parent.append(found.node);
    at = from = found.end;
  }
  plain(text.length);
  return parent;
}

/* {node, end}, or null when the match means nothing here. */
function readMark(scan, match) {
  const [whole, escaped, ticks, emphasis, bracket, address, bare, lineBreak] = match;
  const begin = match.index, end = begin + whole.length;
  if (escaped) return {node: escaped, end};
  if (lineBreak) return {node: make('br'), end};
  if (ticks) return readCode(scan, ticks, end);
  if (emphasis) return readEmphasis(scan, emphasis, begin);
  if (scan.inLink) return null;
  if (bracket) return readLink(scan, end);
  return address ? linkTo(address, [address], end) : readBare(bare, begin);
}

/* Remembers a mark that has no end, so that each is looked for once only. */
function noEnd(scan, mark) {
  scan.hopeless.add(mark);
  return null;
}

function readCode(scan, ticks, from) {
  if (scan.hopeless.has(ticks)) return null;
  const end = runAt(scan.text, '`', from, ticks.length);
  if (end < 0) return noEnd(scan, ticks);
  const code = scan.text.slice(from, end).replaceAll('\n', ' ');
  const padded = code.startsWith(' ') && code.endsWith(' ') && !isBlank(code);
  return {node: make('code', '', padded ? code.slice(1, -1) : code), end: end + ticks.length};
}

/* Where a run of exactly `length` of a character begins, or -1. */
function runAt(text, character, from, length) {
  for (let at = text.indexOf(character, from); at >= 0; at = text.indexOf(character, at)) {
    const begin = at;
    while (text[at] === character) at++;
    if (at - begin === length) return begin;
  }
  return -1;
}

const isWord = character => character !== undefined && /[\p{L}\p{N}]/u.test(character);
const isSpace = character => character === undefined || /\s/.test(character);

function readEmphasis(scan, mark, begin) {
  const {text} = scan, from = begin + mark.length;
  if (scan.hopeless.has(mark) || isSpace(text[from]) || (mark[0] === '_' && isWord(text[begin - 1]))) return null;
  const end = closeOf(text, mark, from);
  if (end < 0) return noEnd(scan, mark);
  const tags = mark === '~~' ? ['del'] : EMPHASIS[mark.length];
  const inner = withInline(make(tags.at(-1)), text.slice(from, end), scan.depth + 1, scan.inLink);
  return {node: tags.length > 1 ? make(tags[0], '', inner) : inner, end: end + mark.length};
}

/* Where an emphasis ends: code and escapes are passed over, and runs that open or close another one. */
function closeOf(text, mark, from) {
  for (let at = from; at < text.length;) {
    if (text[at] === '\\') {
      at += 2;
    } else if (text[at] === '`') {
      at = afterCode(text, at);
    } else if (text[at] === mark[0]) {
      const begin = at;
      while (text[at] === mark[0]) at++;
      const closes = begin > from && !isSpace(text[begin - 1]) && (mark[0] !== '_' || !isWord(text[at]));
      if (closes && (at - begin === mark.length || at - begin === 3)) return at - mark.length;
    } else {
      at++;
    }
  }
  return -1;
}

function afterCode(text, at) {
  const begin = at;
  while (text[at] === '`') at++;
  const end = text.indexOf(text.slice(begin, at), at);
  return end < 0 ? at : end + at - begin;
}

/* `from` is behind the opening bracket. */
function readLink(scan, from) {
  const close = scan.hopeless.has('[') ? -1 : bracketAt(scan, from);
  if (close < 0 || scan.text[close + 1] !== '(') return null;
  TARGET.lastIndex = close + 1;
  const target = TARGET.exec(scan.text);
  if (!target) return null;
  const label = withInline(make('span'), scan.text.slice(from, close) || target[1], scan.depth + 1, true);
  return linkTo(target[1], label.childNodes, TARGET.lastIndex);
}

function bracketAt(scan, from) {
  const {text} = scan, last = Math.min(text.length, from + LONGEST_LABEL);
  for (let at = from, open = 1; at < last; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '[') open++;
    else if (text[at] === ']' && --open === 0) return at;
  }
  if (text.indexOf(']', from) < 0) noEnd(scan, '[');
  return -1;
}

/* Punctuation behind an address belongs to the sentence; so does a closing bracket without its opening one. */
function readBare(bare, begin) {
  const trailing = bare.includes('(') ? '.,;:!?\'"]_~' : '.,;:!?\'"]_~)';
  let length = bare.length;
  while (trailing.includes(bare[length - 1])) length--;
  const address = bare.slice(0, length);
  return linkTo(address, [address], begin + length);
}

function linkTo(address, label, end) {
  const href = safeAddress(address);
  if (!href) return null;
  const link = make('a', '', ...label);
  link.href = href;
  link.target = '_blank';
  link.rel = 'noopener noreferrer';
  return {node: link, end};
}

/* ---- a text that grows ---- */

/* Shows a text in an element, and again when it has grown: finished blocks keep their nodes, and with them what is selected in them. */
class MarkdownView {
  constructor(element) {
    this.element = element;
    this.shown = []; /* {kind, key} of each node */
  }

  show(text) {
    const blocks = blocksOf(text.replace(/\r\n?/g, '\n').split('\n'));
    blocks.forEach((block, n) => this.showBlock(block, n));
    while (this.element.childNodes.length > blocks.length) this.element.lastChild.remove();
    this.shown.length = blocks.length;
  }

  showBlock(block, n) {
    const key = block.lines.join('\n'), old = this.shown[n];
    if (old && old.kind === block.kind && old.key === key) return;
    const node = this.element.childNodes[n];
    this.shown[n] = {kind: block.kind, key};
    if (old && old.kind === 'code' && block.kind === 'code' && key.startsWith(old.key)) {
      node.querySelector('span').textContent = block.language;
      node.querySelector('code').textContent = block.code;
    } else if (node) {
      node.replaceWith(blockNode(block, 0));
    } else {
      this.element.append(blockNode(block, 0));
    }
  }
}
