"""The landing page's style: no file of its own, so that all of it is one request."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dde2e9;
  --paper: #fff; --ground: #f5f7fa; --link: #0b5cad;
  --good: #116b3b; --good-bg: #dff3e6; --part: #7a5200; --part-bg: #fdf0d0;
  --bad: #a3211b; --bad-bg: #fde3e1; --idle: #55606e; --idle-bg: #e9edf2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9f0; --soft: #9aa6b5; --line: #2c3542; --paper: #171d26;
    --ground: #0f141b; --link: #7ab7ff;
    --good: #7fdca6; --good-bg: #12351f; --part: #f3cf7c; --part-bg: #3c2e08;
    --bad: #ff9d96; --bad-bg: #45140f; --idle: #a5b0bd; --idle-bg: #252d38; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
header { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; align-items: baseline; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: 0; }
dl div { display: flex; gap: .4rem; }
dt { color: var(--soft); }
dd { margin: 0; font-weight: 600; }
a { color: var(--link); }
code, pre, .endpoints a { font-family: ui-monospace, SFMono-Regular, Menlo, monospace;
  font-size: .9em; }
.note { background: var(--part-bg); color: var(--part); padding: .6rem .9rem;
  border-radius: 6px; }
.endpoints { list-style: none; margin: 0; padding: 0; display: grid; gap: .3rem; }
.endpoints li { display: flex; flex-wrap: wrap; gap: 0 1rem; }
.endpoints a { min-width: 9.5rem; }
.endpoints span, p { color: var(--soft); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px;
  background: var(--paper); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .42rem .8rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
td:nth-child(3) { min-width: 14rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.state { display: inline-block; padding: 0 .55rem; border-radius: 99px; font-size: .85rem;
  white-space: nowrap; }
.good { color: var(--good); background: var(--good-bg); }
.part { color: var(--part); background: var(--part-bg); }
.bad { color: var(--bad); background: var(--bad-bg); }
.idle { color: var(--idle); background: var(--idle-bg); }
pre { background: var(--paper); border: 1px solid var(--line); border-radius: 8px;
  padding: .8rem 1rem; overflow-x: auto; }
"""
