// Settings that a page stores in the browser, or in memory where storage is not allowed (a sandbox).
// The theme is set first, before anything is drawn.
{
  const held = new Map();
  window.cwKept = {
    get(name) {
      try {
        return localStorage.getItem(name);
      } catch {
        return held.get(name) ?? null;
      }
    },
    set(name, value) {
      held.set(name, value);
      try {
        localStorage.setItem(name, value);
      } catch { /* it stays in memory */ }
    },
  };
  const kept = window.cwKept.get('cw-theme');
  const dark = kept ? kept === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
}
