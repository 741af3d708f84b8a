// A figure is a page of its own: its frame gets the height that it needs.
function fit(frame) {
  const height = frame.contentDocument?.querySelector("main")?.getBoundingClientRect().height;
  if (height) frame.style.height = `${Math.ceil(height) + 24}px`;
}

for (const frame of document.querySelectorAll("iframe.attention")) {
  const watch = () => {
    const main = frame.contentDocument?.querySelector("main");
    if (main) new ResizeObserver(() => fit(frame)).observe(main);
  };
  frame.addEventListener("load", watch);
  watch();
}
