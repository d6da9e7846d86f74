// Wide tables scroll sideways on a narrow screen: by keyboard too.
const reachable = () => {
  for (const e of document.querySelectorAll(".md-typeset__scrollwrap")) {
    e.tabIndex = 0;
    e.setAttribute("role", "region");
    e.setAttribute("aria-label", "table");
  }
};
// The theme gives the search's dialog no name.
document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
new MutationObserver(reachable).observe(document.documentElement, { childList: true, subtree: true });
reachable();
