/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat itself: turns, requests, settings. The conversation lives in this page only; settings are kept in the browser, the key until the tab is
 * closed. */

const $ = id => document.getElementById(id);
const NEAR_END = 80; /* pixels from the end at which the view follows the text */
const RETRY_MS = 2000;
const SHORTEST_MS = 20; /* no rate is told of a shorter time */

/* ---- what the browser keeps ---- */

const DEFAULTS = {system: '', temperature: 0, maxTokens: null};

/* A browser may forbid storage; the page then forgets sooner. */
function stored(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

function store(storage, name, value) {
  try {
    if (value === null) window[storage].removeItem(name);
    else window[storage].setItem(name, value);
  } catch {
    /* nothing is kept */
  }
}

function loadSettings() {
  try {
    return {...DEFAULTS, ...JSON.parse(stored('localStorage', 'settings'))};
  } catch {
    return {...DEFAULTS};
  }
}

let settings = loadSettings();
let key = stored('sessionStorage', 'key');
let model = null; /* its id, once the server has told */
let turns = [];   /* {role, text, node, ...} */
let running = null; /* {turn, controller} of the answer that is being written */

/* ---- the server ---- */

/* What went wrong, in words for the reader. `status`: of the answer, 0 without one. */
class Refusal extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = {...options.headers, ...(key ? {Authorization: `Bearer ${key}`} : {})};
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer'});
  } catch (problem) {
    if (problem.name === 'AbortError') throw problem;
    throw new Refusal('The server cannot be reached. Is it still running?');
  }
  if (!response.ok) throw await refusalOf(response);
  return response;
}

async function refusalOf(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    message = (await response.json()).error.message || message;
  } catch {
    /* not an error of the API's form: the status has to do */
  }
  const wait = Number(response.headers.get('Retry-After'));
  if (wait > 0) message += ` Try again in ${wait} s.`;
  return new Refusal(message, response.status);
}

const BROKEN = 'The connection ended before the answer was complete.';

function connectionLost(problem) {
  throw problem.name === 'AbortError' ? problem : new Refusal(BROKEN);
}

/* The data of each server-sent event of a body, as text. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read().catch(connectionLost);
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line.startsWith('data:')) yield line.slice(5).trim();
  }
}

/* Chunks of a streamed answer, up to the event that ends it. */
async function* chunksOf(body) {
  for await (const data of eventsOf(body)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Refusal(chunk.error.message || 'The server gave up on this answer.');
    yield chunk;
  }
  throw new Refusal(BROKEN);
}

async function fetchModel() {
  const list = await (await ask('v1/models')).json();
  model = list.data[0].id;
  $('model').textContent = model;
  document.title = `${model} · IronMule`;
}

/* Asks for the model's name until the server has one to tell. */
async function findModel() {
  try {
    await fetchModel();
  } catch (problem) {
    $('model').textContent = problem.status === 503 ? 'loading …' : '';
    if (problem.status === 503) setTimeout(findModel, RETRY_MS);
    else if (problem.status === 401 && (await askForKey())) await findModel();
  }
}

/* ---- an answer ---- */

/* Messages of the turns before one. An answer that never began is left out, and the questions around it go as one. */
function messagesBefore(turn) {
  const messages = settings.system.trim() ? [{role: 'system', content: settings.system}] : [];
  for (const {role, text} of turns.slice(0, turns.indexOf(turn))) {
    const last = messages.at(-1);
    if (text === '') continue;
    if (last && last.role === role) last.content += `\n\n${text}`;
    else messages.push({role, content: text});
  }
  return messages;
}

/* A text that is there already is continued. */
function bodyFor(turn) {
  const messages = messagesBefore(turn);
  if (turn.text) messages.push({role: 'assistant', content: turn.text});
  const body = {model, messages, stream: true, stream_options: {include_usage: true}, temperature: settings.temperature};
  if (settings.maxTokens) body.max_tokens = settings.maxTokens;
  return body;
}

/* Fetches the text of a turn, or what is still missing of it. Asks for a key when the server wants one. */
async function answer(turn) {
  const controller = new AbortController();
  running = {turn, controller};
  Object.assign(turn, {problem: null, finish: null, numbers: {begun: performance.now(), pieces: 0}});
  showRunning();
  showTurn(turn);
  try {
    await receive(turn, controller.signal);
  } catch (problem) {
    turn.problem = problem;
    if (problem.name === 'AbortError') turn.finish = 'stopped';
    if (problem.status === 404) model = null; /* another one may be served by now: the next try asks */
  }
  if (running?.turn === turn) running = null;
  showRunning();
  showTurn(turn);
  if (turn.problem?.status === 401 && turns.includes(turn) && (await askForKey())) await answer(turn);
}

async function receive(turn, signal) {
  if (!model) await fetchModel();
  turn.numbers.begun = performance.now();
  const headers = {'Content-Type': 'application/json'};
  const response = await ask('v1/chat/completions', {method: 'POST', headers, signal, body: JSON.stringify(bodyFor(turn))});
  for await (const chunk of chunksOf(response.body)) {
    takeChunk(turn, chunk);
    showSoon(turn);
  }
}

function takeChunk(turn, chunk) {
  const {numbers} = turn, choice = chunk.choices[0];
  if (chunk.usage) numbers.usage = chunk.usage;
  if (choice?.finish_reason) turn.finish = choice.finish_reason;
  if (!choice?.delta?.content) return;
  numbers.last = performance.now();
  numbers.first ??= numbers.last;
  numbers.pieces++;
  turn.text += choice.delta.content;
}

/* "0.21 s to first token · 48.3 tokens/s · 64 tokens · prompt 201, 182 cached" */
function numbersText({begun, first, last, pieces, usage}) {
  if (first === undefined) return '';
  const tokens = usage ? usage.completion_tokens : pieces;
  const parts = [`${((first - begun) / 1000).toFixed(2)} s to first token`];
  if (tokens > 1 && last - first > SHORTEST_MS) parts.push(`${(((tokens - 1) * 1000) / (last - first)).toFixed(1)} tokens/s`);
  parts.push(tokens === 1 ? '1 token' : `${tokens} tokens`);
  if (usage) parts.push(`prompt ${usage.prompt_tokens}, ${usage.prompt_tokens_details?.cached_tokens ?? 0} cached`);
  return parts.join(' · ');
}

/* ---- showing turns ---- */

function button(text, action, label) {
  const node = make('button', 'quiet', text);
  node.type = 'button';
  node.dataset.action = action;
  if (label) node.setAttribute('aria-label', label);
  return node;
}

function addTurn(role, text) {
  const turn = {role, text, node: make('article', `turn ${role}`)};
  turn.node.setAttribute('aria-label', role === 'user' ? 'You' : 'Answer');
  if (role === 'assistant') {
    turn.answerNode = make('div', 'answer');
    turn.view = new MarkdownView(turn.answerNode);
    turn.after = make('div');
    turn.node.append(turn.answerNode, turn.after);
  }
  turns.push(turn);
  $('turns').append(turn.node);
  showTurn(turn);
  return turn;
}

function showTurn(turn) {
  if (turn.role === 'user') showQuestion(turn);
  else showAnswer(turn);
  $('empty').hidden = turns.length > 0;
}

function showQuestion(turn) {
  const tools = make('div', 'tools', button('Edit', 'edit', 'Edit this message'), button('Copy', 'copy', 'Copy this message'));
  turn.node.replaceChildren(make('div', 'text', turn.text), make('div', 'foot', tools));
}

function showAnswer(turn) {
  const active = running?.turn === turn, follow = isAtEnd();
  turn.view.show(turn.text);
  turn.node.setAttribute('aria-busy', String(active));
  const notice = active ? null : noticeFor(turn);
  const numbers = make('span', 'numbers', turn.numbers ? numbersText(turn.numbers) : '');
  const foot = make('div', 'foot', numbers, ...(active ? [] : [toolsFor(turn)]));
  const waiting = active && !turn.text ? [make('span', 'waiting')] : [];
  turn.after.replaceChildren(...waiting, ...(notice ? [notice] : []), foot);
  if (follow) toEnd();
}

function toolsFor(turn) {
  const tools = [button('Again', 'again', 'Answer again')];
  if (turn.text) tools.unshift(button('Copy', 'copy', 'Copy this answer'));
  if (turn.text && (turn.problem || turn.finish === 'length')) tools.push(button('Continue', 'continue', 'Continue this answer'));
  return make('div', 'tools', ...tools);
}

/* What has to be said about how an answer ended. */
function noticeFor(turn) {
  const mild = text => make('p', 'notice mild', text);
  if (turn.finish === 'stopped') return mild('Stopped.');
  if (turn.problem) return alertOf(turn.problem.message);
  if (turn.finish === 'length') return mild('The answer reached the limit of tokens.');
  if (!turn.text) return mild('The model answered with nothing.');
  if (turn.before === turn.text) return mild(sameAnswer());
  return null;
}

function sameAnswer() {
  return settings.temperature === 0 ? 'The same answer, as always at temperature 0. Settings can raise it.' : 'The same answer as before.';
}

function alertOf(text) {
  const node = make('p', 'notice', text);
  node.setAttribute('role', 'alert');
  return node;
}

/* Shows a turn once in a frame, however many tokens came. */
function showSoon(turn) {
  if (turn.frame) return;
  turn.frame = requestAnimationFrame(() => {
    turn.frame = null;
    if (running?.turn === turn) showAnswer(turn);
  });
}

function showRunning() {
  $('send').hidden = Boolean(running);
  $('stop').hidden = !running;
  $('status').textContent = running ? 'The answer is being written.' : turns.length ? 'The answer is complete.' : '';
  showSendable();
}

function showSendable() {
  $('send').disabled = $('input').value.trim() === '';
}

/* ---- the view ---- */

function isAtEnd() {
  const {scrollHeight, scrollTop, clientHeight} = $('scroller');
  return scrollHeight - scrollTop - clientHeight < NEAR_END;
}

function toEnd() {
  $('scroller').scrollTop = $('scroller').scrollHeight;
}

/* As high as its text. */
function fit(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

function currentTheme() {
  return document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
}

function showTheme() {
  const other = currentTheme() === 'dark' ? 'Light' : 'Dark';
  $('theme').textContent = other;
  $('theme').setAttribute('aria-label', `${other} colours`);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  store('localStorage', 'theme', theme);
  showTheme();
}

/* The clipboard is there on safe origins only; elsewhere the old way still works. */
async function copy(text, node) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make('textarea', 'hidden-text', text);
    node.after(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    node.focus();
  }
  const label = node.textContent;
  node.textContent = 'Copied';
  setTimeout(() => (node.textContent = label === 'Copied' ? 'Copy' : label), 1200);
}

/* ---- what the reader does ---- */

function send(text) {
  addTurn('user', text);
  const turn = addTurn('assistant', '');
  toEnd();
  answer(turn);
}

function stop() {
  running?.controller.abort();
}

/* Forgets a turn and those after it. */
function cutFrom(turn) {
  if (running) stop();
  running = null;
  for (const gone of turns.splice(turns.indexOf(turn))) gone.node.remove();
}

function again(turn) {
  const before = turn.text;
  cutFrom(turn);
  const next = addTurn('assistant', '');
  next.before = before;
  answer(next);
}

function newChat() {
  if (turns.length) cutFrom(turns[0]);
  showRunning();
  $('empty').hidden = false;
  $('input').focus();
}

/* Puts a form in the place of a question. */
function edit(turn) {
  const area = make('textarea');
  area.rows = 1;
  area.value = turn.text;
  area.setAttribute('aria-label', 'Edit this message');
  const save = make('button', 'primary', 'Send');
  const form = make('form', '', area, make('div', 'actions', button('Cancel', 'cancel-edit'), save));
  form.addEventListener('submit', event => {
    event.preventDefault();
    if (area.value.trim()) resend(turn, area.value);
  });
  area.addEventListener('input', () => fit(area));
  turn.node.replaceChildren(form);
  fit(area);
  area.focus();
}

function resend(turn, text) {
  cutFrom(turn);
  send(text);
  $('input').focus();
}

function endEdit(turn) {
  showQuestion(turn);
  turn.node.querySelector('[data-action="edit"]').focus();
}

const ACTIONS = {
  copy: (turn, node) => copy(turn.text, node),
  'copy-code': (turn, node) => copy(node.closest('.code').querySelector('code').textContent, node),
  edit,
  'cancel-edit': endEdit,
  again,
  continue: turn => answer(turn),
};

function onTurnClick(event) {
  const node = event.target.closest('[data-action]');
  const turn = node && turns.find(one => one.node.contains(node));
  if (turn) ACTIONS[node.dataset.action](turn, node);
}

/* Enter sends, Shift+Enter starts a line; an input method's own Enter is not ours. Under fingers Enter starts a line: there is no Shift to hold. */
function onEnter(event) {
  if (matchMedia('(hover: none) and (pointer: coarse)').matches) return;
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229 || event.target.tagName !== 'TEXTAREA' || !event.target.form) return;
  if (event.target.closest('dialog')) return;
  event.preventDefault();
  event.target.form.requestSubmit();
}

function onEscape(event) {
  if (event.key !== 'Escape' || document.querySelector('dialog[open]')) return;
  const edited = turns.find(turn => turn.node.querySelector('form')?.contains(document.activeElement));
  if (edited) endEdit(edited);
  else stop();
}

function onSubmit(event) {
  event.preventDefault();
  const text = $('input').value;
  if (running || !text.trim()) return;
  $('input').value = '';
  fit($('input'));
  send(text);
  showSendable();
}

/* ---- dialogs ---- */

/* Resolves when the dialog has been closed: was it submitted? */
function shown(dialog) {
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener('close', () => resolve(dialog.returnValue === 'done'), {once: true}));
}

/* Asks once, however many requests were refused. */
let keyAsked = null;
function askForKey() {
  keyAsked ??= askForKeyOnce().finally(() => (keyAsked = null));
  return keyAsked;
}

async function askForKeyOnce() {
  $('key-reason').textContent = key ? 'The server did not accept the key.' : 'This server answers with an API key only.';
  $('key').value = '';
  const given = await shown($('key-dialog'));
  if (given) {
    key = $('key').value.trim();
    store('sessionStorage', 'key', key);
  }
  $('input').focus();
  return given;
}

function fillSettings(from) {
  $('system').value = from.system;
  $('temperature').value = $('temperature-range').value = from.temperature;
  $('max-tokens').value = from.maxTokens ?? '';
  $('forget-key').hidden = !key;
}

async function openSettings() {
  fillSettings(settings);
  if (await shown($('settings'))) {
    settings = {system: $('system').value, temperature: Number($('temperature').value), maxTokens: Number($('max-tokens').value) || null};
    store('localStorage', 'settings', JSON.stringify(settings));
  }
  $('input').focus();
}

function forgetKey() {
  key = null;
  store('sessionStorage', 'key', null);
  $('forget-key').hidden = true;
}

/* ---- the beginning ---- */

function listen() {
  $('composer').addEventListener('submit', onSubmit);
  $('input').addEventListener('input', () => {
    fit($('input'));
    showSendable();
  });
  $('turns').addEventListener('click', onTurnClick);
  $('stop').addEventListener('click', () => {
    stop();
    $('input').focus();
  });
  $('new-chat').addEventListener('click', newChat);
  $('to-end').addEventListener('click', toEnd);
  $('scroller').addEventListener('scroll', () => ($('to-end').hidden = isAtEnd()), {passive: true});
  document.addEventListener('keydown', onEnter);
  document.addEventListener('keydown', onEscape);
}

function listenToSettings() {
  $('open-settings').addEventListener('click', openSettings);
  $('temperature-range').addEventListener('input', event => ($('temperature').value = event.target.value));
  $('temperature').addEventListener('input', event => ($('temperature-range').value = event.target.value));
  $('settings').querySelector('form').addEventListener('reset', event => {
    event.preventDefault();
    fillSettings(DEFAULTS);
  });
  $('forget-key').addEventListener('click', forgetKey);
  $('key-cancel').addEventListener('click', () => $('key-dialog').close());
  $('theme').addEventListener('click', () => setTheme(currentTheme() === 'dark' ? 'light' : 'dark'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', showTheme);
}

const theme = stored('localStorage', 'theme');
if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
showTheme();
listen();
listenToSettings();
showRunning();
findModel();
