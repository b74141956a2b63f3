// A plain module on a page that is not ours: its own colours, light or dark as the page is, inside a
// shadow root.
function pageIsDark() {
  for (const node of [document.body, document.documentElement]) {
    const jupyter = node.getAttribute('data-jp-theme-light');
    if (jupyter) return jupyter === 'false';
    const theme = node.getAttribute('data-theme') ?? node.getAttribute('data-bs-theme');
    if (theme === 'dark' || theme === 'light') return theme === 'dark';
  }
  return null;
}

export default {
  render({ model, el }) {
    // Its keys are not Jupyter's commands.
    const outer = h('div', { class: 'cw-hosted', 'data-lm-suppress-shortcuts': 'true', style: { height: '100%', minHeight: '0' } });
    const shadow = outer.attachShadow({ mode: 'open' });
    const sheet = h('style');
    sheet.textContent = `${PALETTE} :host { display: block; background: var(--surface); }`;
    const inner = h('div', { style: { height: '100%' } });
    shadow.append(sheet, inner);
    el.append(outer);
    const system = matchMedia('(prefers-color-scheme: dark)');
    const theme = () => {
      const wanted = model.get('theme');
      const dark = wanted === 'dark' || (wanted !== 'light' && (pageIsDark() ?? system.matches));
      outer.dataset.theme = dark ? 'dark' : 'light';
    };
    theme();
    const observer = new MutationObserver(theme);
    for (const node of [document.documentElement, document.body]) {
      observer.observe(node, { attributeFilter: ['data-theme', 'data-bs-theme', 'data-jp-theme-light'] });
    }
    system.addEventListener('change', theme);
    model.on('change:theme', theme);
    const undo = drawn.render({ model, el: inner });
    outer.dataset.ready = '1';
    return () => {
      observer.disconnect();
      system.removeEventListener('change', theme);
      model.off('change:theme', theme);
      undo?.();
    };
  },
};
