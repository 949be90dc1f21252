() => {
  // The contrast of each text with what lies behind it, as WCAG 2 computes it.
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const linear = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = channels(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest("svg, noscript, .hidden, .skip")) continue;
    const [a, b] = [luminance(channels(getComputedStyle(element).color)), luminance(behind(element))];
    found.push({ text, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) });
  }
  return found;
}
