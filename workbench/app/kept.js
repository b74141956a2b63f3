// Settings that a page stores in the browser, or in memory where storage is not allowed (a sandbox).
// The theme is set first, before anything is drawn.
{
  const memory = new Map();
  window.cwKept = {
    get(name) {
      try {
        return localStorage.getItem(name);
      } catch {
        return memory.get(name) ?? null;
      }
    },
    set(name, value) {
      memory.set(name, value);
      try {
        localStorage.setItem(name, value);
      } catch { /* it stays in memory */ }
    },
  };
  const storedTheme = window.cwKept.get('cw-theme');
  const dark = storedTheme ? storedTheme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
}
