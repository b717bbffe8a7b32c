"""The style sheet of the page."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0; --card: #f5f7f9;
  --good: #18794e; --bad: #b42318; --plain: #8a929c; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --ink: #e8ebee; --soft: #9aa4ae; --line: #363d45;
  --card: #1d2126; --good: #4cc38a; --bad: #ff8a7d; --plain: #78828d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.45 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.35rem; margin: 0 0 1rem; text-wrap: balance; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
h3 { font-size: .9rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
.verdict { list-style: none; margin: 0 0 1.6rem; padding: 0; display: grid; gap: .5rem; }
.verdict li { background: var(--card); border-left: .3rem solid var(--plain); border-radius: .3rem;
  padding: .5rem .8rem; overflow-wrap: anywhere; }
.verdict b { color: var(--soft); font-weight: 500; font-size: .85rem; display: block; }
.verdict li.good { border-color: var(--good); }
.verdict li.bad { border-color: var(--bad); }
figure { margin: 0 0 1rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: system-ui, sans-serif !important; }
.narrow { display: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; min-width: 60%; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line);
  vertical-align: top; }
thead th { color: var(--soft); font-weight: 500; border-bottom-color: var(--soft); }
tbody th { font-weight: 500; max-width: 24rem; white-space: normal; overflow-wrap: anywhere; min-width: 7.5rem; }
.word { text-align: left; }
.n { white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); }
.verdict .good, .verdict .bad { color: inherit; }
.note, .nothing { color: var(--soft); font-size: .85rem; margin: .5rem 0 0; }
dl { margin: 0; display: grid; grid-template-columns: 8rem 1fr; gap: .35rem 1rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: 0; padding: .7rem .9rem; background: var(--card); border-radius: .3rem; font-size: .78rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .wide { display: none; }
  .narrow { display: block; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dt { margin-top: .6rem; }
}
@media print {
  :root { color-scheme: light; --page: #fff; --ink: #000; --soft: #444; --line: #bbb; --card: #fff; --good: #0b5a37;
    --bad: #8f1a11; --plain: #777; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .wide { display: block; }
  .narrow { display: none; }
  figure, tr, .verdict li { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; width: 100%; }
  th, td { white-space: normal; padding-right: .4rem; }
  .verdict li { border: 1px solid var(--line); border-left-width: .3rem; }
}
"""
