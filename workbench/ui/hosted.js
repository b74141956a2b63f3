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
    const applyTheme = () => {
      const requested = model.get('theme');
      const dark = requested === 'dark' || (requested !== 'light' && (pageIsDark() ?? system.matches));
      outer.dataset.theme = dark ? 'dark' : 'light';
    };
    applyTheme();
    const observer = new MutationObserver(applyTheme);
    for (const node of [document.documentElement, document.body]) {
      observer.observe(node, { attributeFilter: ['data-theme', 'data-bs-theme', 'data-jp-theme-light'] });
    }
    system.addEventListener('change', applyTheme);
    model.on('change:theme', applyTheme);
    const undo = drawn.render({ model, el: inner });
    outer.dataset.ready = '1';
    return () => {
      observer.disconnect();
      system.removeEventListener('change', applyTheme);
      model.off('change:theme', applyTheme);
      undo?.();
    };
  },
};
