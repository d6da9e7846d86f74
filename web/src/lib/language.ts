// Imported first. A browser without a locale (Chromium under LANG=C) calls its language en-US@posix, which Intl refuses;
// uPlot asks it of Intl where it is loaded, and the page stayed empty.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}
