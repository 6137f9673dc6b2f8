// The style sheet of the status page: light and dark, wide and narrow.
#ifndef SKRULL_SERVER_STATUS_STATUS_PAGE_CSS_H_
#define SKRULL_SERVER_STATUS_STATUS_PAGE_CSS_H_

namespace skrull {

inline constexpr char kStatusPageCss[] = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --text: #1b1f24; --faint: #5f6873;
  --line: #dfe3e8; --bar: #2f6fde; --track: #e7ebf1;
  --good: #16703c; --good-back: #dcf3e4; --warn: #8a4b00; --warn-back: #fdecd0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111418; --card: #1a1e24; --text: #e5e9ee; --faint: #98a2ae;
    --line: #2c323a; --bar: #6ea2ff; --track: #2a3038;
    --good: #8be0ab; --good-back: #143524; --warn: #ffc475; --warn-back: #3d2a0c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.25rem; max-width: 80rem;
  background: var(--page); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
a { color: var(--bar); }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
h1 { font-size: 1.35rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 1.75rem 0 .6rem; }
.faint { color: var(--faint); }
.state { padding: .05rem .6rem; border-radius: 1rem; font-size: .85rem; font-weight: 600; }
.state.good { color: var(--good); background: var(--good-back); }
.state.warn { color: var(--warn); background: var(--warn-back); }
.push { margin-left: auto; }
.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8.6rem, 1fr));
  gap: .6rem; margin: 1rem 0 0;
}
.facts div, table, .plan { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.facts div { padding: .55rem .8rem; }
.facts dt { color: var(--faint); font-size: .82rem; }
.facts dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.facts .warn dd { color: var(--warn); }
table { width: 100%; border-collapse: separate; border-spacing: 0; }
th, td { padding: .45rem .8rem; text-align: right; border-top: 1px solid var(--line); }
th { color: var(--faint); font-weight: 500; font-size: .82rem; border-top: 0; white-space: nowrap; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
td.name { font-weight: 600; }
td.name, .plan h3 { overflow-wrap: anywhere; }
.plans { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: .6rem; }
.plan { padding: .7rem .8rem; min-width: 0; }
.plan h3 { margin: 0; font-size: .95rem; }
.plan p { margin: .1rem 0 .5rem; font-size: .85rem; color: var(--faint); }
.plan dl {
  display: grid; grid-template-columns: repeat(3, 1fr); gap: .25rem .8rem;
  margin: .55rem 0 0;
}
.plan dt { color: var(--faint); font-size: .78rem; }
.plan dd { margin: 0; font-size: .92rem; }
.load { display: block; width: 100%; height: 2.6rem; }
.load .track { fill: var(--track); }
.load .rows { fill: var(--bar); }
footer { margin: 1.75rem 0 .5rem; color: var(--faint); font-size: .85rem; }
@media (max-width: 44rem) {
  body { padding: .8rem; }
  .facts { grid-template-columns: repeat(2, 1fr); }
  table, tbody, tr, td { display: block; }
  table { background: none; border: 0; }
  thead { display: none; }
  tr { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .8rem; margin-bottom: .6rem; display: grid; grid-template-columns: 1fr 1fr; column-gap: 1.4rem; }
  td { display: flex; justify-content: space-between; gap: 1rem; padding: .12rem 0; border: 0; }
  td::before { content: attr(data-label); color: var(--faint); font-weight: 400; white-space: nowrap; }
  td.name { font-size: 1.02rem; grid-column: 1 / -1; }
  td.name::before { content: none; }
}
)css";

}  // namespace skrull

#endif  // SKRULL_SERVER_STATUS_STATUS_PAGE_CSS_H_
