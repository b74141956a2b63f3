// Downloads of every view: tables as CSV, drawings as SVG and PNG, texts, in the menu of one button.
// The files contain names from models, which are quoted for the programs that read them.

/** Saves `content` (text, bytes or a Blob) as the file `name`. */
function download(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = h('a', { href: URL.createObjectURL(blob), download: fileName(name) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A file name that is valid on every file system; keeps the extension. */
function fileName(text) {
  const safe = text.replace(/[^\w.+=@-]+/g, '_');
  const [extension] = /(\.\w{1,5}){0,2}$/.exec(safe);
  return safe.slice(0, safe.length - extension.length).slice(0, 100) + extension || 'download';
}

/** `rows` of values under `names`, as CSV.  Text that a spreadsheet would evaluate as a formula stays text. */
function csvText(names, rows) {
  const quote = (value) => {
    const raw = String(value ?? '');
    const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(raw) && Number.isNaN(Number(raw)) ? `'${raw}` : raw;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows].map((row) => row.map(quote).join(',')).join('\n');
}

/** Characters that are not valid in XML (names in a model can contain any). */
const INVALID_XML = /[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const STYLE_ATTRIBUTES = ['fill', 'fill-opacity', 'stroke', 'stroke-opacity', 'stroke-width', 'stroke-dasharray', 'opacity', 'visibility', 'font-family', 'font-size', 'font-weight', 'text-anchor', 'paint-order', 'stroke-linejoin'];

/** A drawing as a standalone file: styles become attributes. */
function svgText(picture) {
  const copy = picture.cloneNode(true);
  const [from, to] = [picture, copy].map((each) => [each, ...each.querySelectorAll('*')]);
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of STYLE_ATTRIBUTES) {
      const value = style.getPropertyValue(name);
      to[i].setAttribute(name, value === 'rgba(0, 0, 0, 0)' ? 'none' : value); // some readers do not support alpha
    }
    for (const name of ['class', 'tabindex', 'style']) to[i].removeAttribute(name);
  });
  const { width, height } = picture.getBoundingClientRect();
  copy.setAttribute('xmlns', SVG);
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  const background = document.createElementNS(SVG, 'rect');
  const [left, top, boxWidth, boxHeight] = (picture.getAttribute('viewBox') ?? `0 0 ${width} ${height}`).split(' ');
  for (const [name, value] of Object.entries({ x: left, y: top, width: boxWidth, height: boxHeight })) background.setAttribute(name, value);
  background.setAttribute('fill', getComputedStyle(picture).getPropertyValue('--surface').trim() || 'white');
  copy.prepend(background);
  return new XMLSerializer().serializeToString(copy).replace(INVALID_XML, '\ufffd');
}

/** A drawing as PNG, with twice its resolution on the screen. */
async function renderPng(picture) {
  const { width, height } = picture.getBoundingClientRect();
  const address = URL.createObjectURL(new Blob([svgText(picture)], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = h('canvas', { width: Math.ceil(2 * width), height: Math.ceil(2 * height) });
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => { canvas.toBlob(done, 'image/png'); });
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** Flattens nested facts into rows of a name (`numbers.0`) and a value. */
const flattenFacts = (value, name = '') => (value !== null && typeof value === 'object'
  ? Object.entries(value).flatMap(([key, each]) => flattenFacts(each, name ? `${name}.${key}` : key)) : [[name, value]]);

// -- the menu -----------------------------------------------------------------------------------

/** An item for a table: `make()` returns the names of its columns, and its rows. */
const csvItem = (what, file, make) => [`${what}, CSV`, () => download(`${file}.csv`, csvText(...make()), 'text/csv')];
/** Two items for a drawing; none without a `picture`. */
const pictureItems = (what, file, picture) => (picture ? [
  [`${what}, SVG`, () => download(`${file}.svg`, svgText(picture), 'image/svg+xml')],
  [`${what}, PNG`, async () => download(`${file}.png`, await renderPng(picture))],
] : []);
const textItem = (what, file, make) => [what, () => download(file, make(), 'text/plain')];

/** The download button of a view; `items()` returns the current items, `[title, save]`.  The
 * menu is placed next to the view: it stays open and focused while the view is redrawn. */
function downloadMenu(items, what = 'Download') {
  const menu = h('div', { class: 'menu', role: 'menu', popover: 'auto', 'aria-label': what });
  const button = h('button', { class: 'plain save', title: what, 'aria-label': what, 'aria-haspopup': 'menu', 'aria-expanded': 'false' }, '⤓');
  button.popoverTargetElement = menu;
  let view = null;
  const attachMenu = () => {
    view = button.closest('.root');
    view.parentNode.append(menu);
  };
  /** Focuses the button, or the one that replaced it. */
  const focusButton = () => {
    const others = [...view.querySelectorAll('button.save')];
    (button.isConnected ? button : others.find((each) => each.title === what))?.focus();
  };
  const menuItems = () => [...menu.querySelectorAll('button')];
  const choose = async (save) => {
    menu.hidePopover();
    focusButton();
    try {
      await save();
    } catch (error) {
      menu.replaceChildren(h('p', { role: 'alert' }, `Cannot save the file: ${error.message}`));
      menu.dataset.told = '';
      view.parentNode.append(menu);
      menu.showPopover();
    }
  };
  button.addEventListener('click', () => { if (!menu.isConnected) attachMenu(); }); // then the browser opens it
  menu.addEventListener('beforetoggle', (event) => {
    if (event.newState !== 'open') return;
    if ('told' in menu.dataset) delete menu.dataset.told;
    else menu.replaceChildren(...items().map(([title, save]) => h('button', { role: 'menuitem', tabindex: -1, title, click: () => choose(save) }, title)));
  });
  menu.addEventListener('toggle', () => {
    const isOpen = menu.matches(':popover-open');
    button.setAttribute('aria-expanded', String(isOpen));
    if (!isOpen) {
      menu.remove();
      return;
    }
    const box = button.getBoundingClientRect();
    const fitsBelow = box.bottom + 2 + menu.offsetHeight < innerHeight;
    menu.style.left = `${Math.max(4, Math.min(box.left, innerWidth - menu.offsetWidth - 6))}px`;
    menu.style.top = `${fitsBelow ? box.bottom + 2 : Math.max(4, box.top - menu.offsetHeight - 2)}px`;
    menuItems()[0]?.focus();
  });
  menu.addEventListener('keydown', (event) => {
    const list = menuItems();
    const current = list.indexOf(event.target);
    const to = { ArrowDown: (current + 1) % list.length, ArrowUp: (current - 1 + list.length) % list.length, Home: 0, End: list.length - 1 }[event.key];
    event.stopPropagation(); // not a key of the view or the page
    if (event.key === 'Escape' || event.key === 'Tab') {
      menu.hidePopover();
      focusButton();
    } else if (to === undefined) return;
    else list[to].focus();
    event.preventDefault();
  });
  button.addEventListener('keydown', (event) => { // before the menu has the focus
    if (event.key !== 'Escape' || !menu.matches(':popover-open')) return;
    menu.hidePopover();
    event.stopPropagation();
  });
  return h('span', { class: 'saves' }, button);
}
