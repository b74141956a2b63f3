// What a page keeps in the browser; where that is not allowed, as in a sandbox, while it is open.
// First of all its theme: it is there before anything is drawn.
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
      } catch { /* it is held */ }
    },
  };
  const kept = window.cwKept.get('cw-theme');
  const dark = kept ? kept === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
}
