"""The pages of the documentation are true: what they show is run.

To add a page: write `docs/.../name.md`; it is found by itself (README.md and deploy/README.md, too). Run it by
`pytest -q tests/docs/test_pages.py -k docs/.../name.md`. On the page:

- A block with a title (```python title="app.py") is a file in the page's folder. A later block with the same title
  replaces it; `title="app.py (continued)"` adds to its end.
- ```python without a title has `def test_` in it: pytest runs it. Without one, it is a script, which must end well and
  print nothing on stderr.
- ```console: `$ ` begins a command. All commands of a page share one bash, so `cd` and `export` last. A command goes on
  over lines that begin with `> `, or after a `\\` at the end of a line. The lines after it are all that it prints, from
  first to last; `...` as a line is any lines, within a line any text; how many spaces there are does not matter. A
  command without such lines may print anything. It has to succeed, unless it ends in `# exit status 1`. One that only
  looks (`tarry jobs show`, `tarry status`, `curl -s`, `cat`) is repeated for half a minute until it shows that.
- A command that ends in ` &` goes on until the page ends; the lines after it are waited for, in that order, in what it
  prints. `pip install ...` only looks whether all of that is here. What is left at the end is killed.
- ```toml without a title is loaded as settings of tarry, unless it has a `[project]` or another tool's table.
- `<!-- not run: why -->` on the line before a block: it is only shown.
- Blocks of other languages are only shown.

`tarry` and `python` are forked from a process that has imported all of it, as `forked_programs.py` tells.

The ports 7800, 7801, 8000 and 11300 become free ones in the blocks; `localhost:6379` becomes a Redis server, and
`shop@localhost/shop` an empty database of PostgreSQL, if the page names them (else the page is skipped where they are
not installed). A block that is run elsewhere has its line in `pages.HELD_ELSEWHERE`.
"""
