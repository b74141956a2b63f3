// What every view can save: tables as CSV, drawings as SVG and PNG, texts, behind one small button.
// A model's names go into these files, so they are quoted for what reads them.

/** Saves `content` (text, bytes or a Blob) as the file `name`. */
function download(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = h('a', { href: URL.createObjectURL(blob), download: fileName(name) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A name that every file system takes; how it ends stays. */
function fileName(text) {
  const plain_ = text.replace(/[^\w.+=@-]+/g, '_');
  const [end] = /(\.\w{1,5}){0,2}$/.exec(plain_);
  return plain_.slice(0, plain_.length - end.length).slice(0, 100) + end || 'download';
}

/** `rows` of values under `names`, as CSV.  A text that a spreadsheet would calculate stays a text. */
function csvText(names, rows) {
  const quote = (value) => {
    const plain_ = String(value ?? '');
    const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(plain_) && Number.isNaN(Number(plain_)) ? `'${plain_}` : plain_;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows].map((row) => row.map(quote).join(',')).join('\n');
}

/** What is no character of XML (the names of a model may hold any). */
const NO_XML = /[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const DRAWN = ['fill', 'fill-opacity', 'stroke', 'stroke-opacity', 'stroke-width', 'stroke-dasharray', 'opacity', 'visibility', 'font-family', 'font-size', 'font-weight', 'text-anchor', 'paint-order', 'stroke-linejoin'];

/** A drawing as a file of its own: what the style sheet says becomes attributes. */
function svgText(picture) {
  const copy = picture.cloneNode(true);
  const [from, to] = [picture, copy].map((each) => [each, ...each.querySelectorAll('*')]);
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of DRAWN) {
      const value = style.getPropertyValue(name);
      to[i].setAttribute(name, value === 'rgba(0, 0, 0, 0)' ? 'none' : value); // not every reader knows alpha
    }
    for (const name of ['class', 'tabindex', 'style']) to[i].removeAttribute(name);
  });
  const { width, height } = picture.getBoundingClientRect();
  copy.setAttribute('xmlns', SVG);
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  const back = document.createElementNS(SVG, 'rect');
  const [left, top, wide, high] = (picture.getAttribute('viewBox') ?? `0 0 ${width} ${height}`).split(' ');
  for (const [name, value] of Object.entries({ x: left, y: top, width: wide, height: high })) back.setAttribute(name, value);
  back.setAttribute('fill', getComputedStyle(picture).getPropertyValue('--surface').trim() || 'white');
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy).replace(NO_XML, '\ufffd');
}

/** A drawing as PNG, with twice as many pixels as it has on the screen. */
async function pngOf(picture) {
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

/** Facts within facts as rows of a name and a value: `numbers.0`. */
const flat = (value, name = '') => (value !== null && typeof value === 'object'
  ? Object.entries(value).flatMap(([key, each]) => flat(each, name ? `${name}.${key}` : key)) : [[name, value]]);

// -- the menu -----------------------------------------------------------------------------------

/** A table: `make()` gives the names of its columns, and its rows. */
const csvItem = (what, file, make) => [`${what}, CSV`, () => download(`${file}.csv`, csvText(...make()), 'text/csv')];
/** A drawing, as two items; none where there is no `picture`. */
const pictureItems = (what, file, picture) => (picture ? [
  [`${what}, SVG`, () => download(`${file}.svg`, svgText(picture), 'image/svg+xml')],
  [`${what}, PNG`, async () => download(`${file}.png`, await pngOf(picture))],
] : []);
const textItem = (what, file, make) => [what, () => download(file, make(), 'text/plain')];

/** The button of a view that saves; `items()` says what there is at the time: `[title, save]`.  The
 * menu stands beside the view: it stays open, with its focus, while the view is drawn again. */
function downloadMenu(items, what = 'Download') {
  const menu = h('div', { class: 'menu', role: 'menu', popover: 'auto', 'aria-label': what });
  const button = h('button', { class: 'plain save', title: what, 'aria-label': what, 'aria-haspopup': 'menu', 'aria-expanded': 'false' }, '⤓');
  button.popoverTargetElement = menu;
  let view = null;
  const place = () => {
    view = button.closest('.root');
    view.parentNode.append(menu);
  };
  /** Back to the button, or to the one that was drawn in its place. */
  const back = () => {
    const others = [...view.querySelectorAll('button.save')];
    (button.isConnected ? button : others.find((each) => each.title === what))?.focus();
  };
  const choices = () => [...menu.querySelectorAll('button')];
  const pick = async (save) => {
    menu.hidePopover();
    back();
    try {
      await save();
    } catch (error) {
      menu.replaceChildren(h('p', { role: 'alert' }, `It could not be saved: ${error.message}`));
      menu.dataset.told = '';
      view.parentNode.append(menu);
      menu.showPopover();
    }
  };
  button.addEventListener('click', () => { if (!menu.isConnected) place(); }); // then the browser opens it
  menu.addEventListener('beforetoggle', (event) => {
    if (event.newState !== 'open') return;
    if ('told' in menu.dataset) delete menu.dataset.told;
    else menu.replaceChildren(...items().map(([title, save]) => h('button', { role: 'menuitem', tabindex: -1, title, click: () => pick(save) }, title)));
  });
  menu.addEventListener('toggle', () => {
    const open = menu.matches(':popover-open');
    button.setAttribute('aria-expanded', String(open));
    if (!open) {
      menu.remove();
      return;
    }
    const box = button.getBoundingClientRect();
    const below = box.bottom + 2 + menu.offsetHeight < innerHeight;
    menu.style.left = `${Math.max(4, Math.min(box.left, innerWidth - menu.offsetWidth - 6))}px`;
    menu.style.top = `${below ? box.bottom + 2 : Math.max(4, box.top - menu.offsetHeight - 2)}px`;
    choices()[0]?.focus();
  });
  menu.addEventListener('keydown', (event) => {
    const list = choices();
    const at = list.indexOf(event.target);
    const to = { ArrowDown: (at + 1) % list.length, ArrowUp: (at - 1 + list.length) % list.length, Home: 0, End: list.length - 1 }[event.key];
    event.stopPropagation(); // keys of the view and of the page are not meant
    if (event.key === 'Escape' || event.key === 'Tab') {
      menu.hidePopover();
      back();
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
