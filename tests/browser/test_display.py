"""What a script shows other than text: by Jupyter's protocol, in an element that it can change, and nothing of it runs."""

from __future__ import annotations

import base64
from typing import Any

from browser.pages import Editor, run_script
from browser.test_accessible import findings

# one red pixel
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")

HOSTILE = [
    "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'><b>kept</b>",
    "<svg onload='window.hacked=3'><script>window.hacked=4</script></svg><b>kept</b>",
    "<a href='javascript:window.hacked=5' id='click'>link</a><b>kept</b>",
    "<iframe srcdoc='<script>parent.hacked=6</script>'></iframe><b>kept</b>",
    "<form action='https://example.com'><input name=password><button>Send</button></form><b>kept</b>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.hacked=7&gt;'>"
    "</table></mtext></math><b>kept</b>",
    "<style>* { display: none !important } body { background: red }</style><b>kept</b>",
    "<div style='position: fixed; inset: 0; background: red'>over all</div><b>kept</b>",
]


def shown(editor: Editor, which: str, count: int = 1) -> Any:
    """The elements `which` of the output, once there are so many; of HTML, in the tree of its own."""
    found = editor.page.locator(f"#output .rich {which}")
    editor.page.wait_for_function(
        """([which, count]) => {
          const all = [...document.querySelectorAll("#output .rich")];
          const roots = all.flatMap((e) => [e, ...[...e.querySelectorAll(".markup")].map((m) => m.shadowRoot)]);
          return roots.flatMap((root) => [...root.querySelectorAll(which)]).length === count;
        }""",
        arg=[which, count],
    )
    return found


def test_values_at_the_prompt(editor: Editor) -> None:
    editor.run(f"""
class Table:
    def _repr_html_(self): return "<table><tr><th>name</th><td>Ada</td></tr></table>"
    def __repr__(self): return "a table"
class Dot:
    def _repr_png_(self): return {PNG!r}
    def __repr__(self): return "a dot"
class Circle:
    def _repr_svg_(self): return '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="7"><circle r="3"/></svg>'
class Notes:
    def _repr_markdown_(self): return "# Title\\n\\n* *one*\\n* two"
class Both:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {{"text/plain": "both", "text/latex": "$x^2$"}}, {{}}
class Itself:
    def _ipython_display_(self): print("by itself")
class Wrong:
    def _repr_html_(self): return 1 / 0
    def __repr__(self): return "wrong"
print("text")
""")
    editor.enter("Table()")
    assert shown(editor, "td").inner_text() == "Ada"
    editor.enter("_, 1")  # as in Python, the last value; text stays text
    assert editor.output.endswith("(a table, 1)\n")
    editor.enter("Dot()")
    image = shown(editor, "img")
    assert image.get_attribute("alt") == "a dot"
    editor.page.wait_for_function("document.querySelector('#output img').naturalWidth === 1")
    editor.enter("Circle()")
    shown(editor, "img", 2)
    editor.page.wait_for_function("document.querySelectorAll('#output img')[1].naturalWidth === 9")
    editor.enter("Notes()")
    assert shown(editor, "h1").inner_text() == "Title"
    assert shown(editor, "li", 2).all_inner_texts() == ["one", "two"]
    editor.enter("Both()")
    assert shown(editor, ".latex").inner_text() == "$x^2$"
    assert editor.enter("Itself()").endswith("by itself\n")
    assert "ZeroDivisionError" in (said := editor.enter("Wrong()")) and said.endswith("wrong\n")
    assert editor.enter("import torch; torch.ones(2)").endswith("tensor([1., 1.])\n")
    assert editor.enter("Table").endswith("<class '__main__.Table'>\n")  # the class is no table


def test_the_display_module(editor: Editor) -> None:
    output = editor.run(f"""
from IPython.display import HTML, JSON, Audio, Code, IFrame, Image, Latex, Markdown, Pretty, SVG, clear_output
from IPython.display import update_display
from IPython.core.display import HTML as Same
from IPython import display as module, get_ipython
assert Same is HTML and module.HTML is HTML and get_ipython().user_ns["HTML"] is HTML
display(1, "two", Pretty("three"))
display(Markdown("**bold**"), Code("x < 1"), Latex("$x$"), JSON({{"a": [1]}}))
display(Image({PNG!r}, width=40, alt="A red dot"))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="7"/>'))
display(Audio([[0.0, 0.5, -0.5] * 100, [0.0] * 300], rate=8000), IFrame("https://example.com/?a=1&b", 600, 400))
display({{"text/html": "<i>raw</i>", "text/plain": "raw"}}, raw=True)
handle = display(HTML("<b>first</b>"), display_id=True)
print("below")
handle.update(HTML("<b>second</b>"))
display(HTML("<u>named</u>"), display_id="name")
update_display(HTML("<u>renamed</u>"), display_id="name")
update_display(HTML("<u>nowhere</u>"), display_id="other")
""")
    assert output.startswith("1\n'two'\nthree\n") and "below\n" in output
    assert shown(editor, "strong").inner_text() == "bold"
    assert shown(editor, "code").inner_text() == "x < 1"
    assert shown(editor, "i").inner_text() == "raw"
    assert shown(editor, "b").inner_text() == "second"  # where the first was
    assert shown(editor, "u").inner_text() == "renamed"
    assert '"a"' in shown(editor, ".json").inner_text()
    sound = shown(editor, "audio")
    editor.page.wait_for_function("(e) => e.duration > 0", arg=sound.element_handle())
    assert sound.evaluate("e => [e.duration, e.paused]") == [300 / 8000, True]
    assert shown(editor, "a").get_attribute("href") == "https://example.com/?a=1&b"
    image = editor.page.get_by_role("img", name="A red dot")
    assert image.evaluate("e => e.width") == 40
    text = "from IPython.display import clear_output, HTML\n"
    loop = "for i in range(20):\n    clear_output(wait=True)\n    print('step', i)\n    display(HTML(f'<b>{i}</b>'))\n"
    output = editor.run(f"{text}print('gone')\n{loop}")
    assert shown(editor, "b").inner_text() == "19" and output == "step 19\n"
    assert editor.run(f"{text}print('gone')\nclear_output()\nprint('kept')\n") == "kept\n"


def test_nothing_that_is_shown_runs(editor: Editor) -> None:
    page = editor.page
    bad = '<svg xmlns="http://www.w3.org/2000/svg" onload="parent.hacked=8"><script>window.hacked=9</script></svg>'
    editor.run(f"""
from IPython.display import HTML, Markdown, SVG
for text in {HOSTILE!r}:
    display(HTML(text))
    display(Markdown(text))
display(SVG({bad!r}))
display(HTML("<a href='https://example.com/'>away</a>"))
import tabtorch
tabtorch.show([[0, 1]], title={HOSTILE[0]!r}, alt={HOSTILE[0]!r}, name={HOSTILE[0]!r})
tabtorch.plot({HOSTILE[0]!r}, xlabel={HOSTILE[0]!r}, **{{{HOSTILE[0]!r}: 1}})
""")
    page.locator("#output .chart .u-legend").wait_for()
    assert page.locator("#output .chart b, #output figure b, #output .rich script").count() == 0
    assert shown(editor, "b", 2 * len(HOSTILE)).last.count() == 1
    inside = "[...document.querySelectorAll('#output .markup')].map((e) => e.shadowRoot)"
    for tag in ("script", "iframe", "form", "input", "button", "[onerror]", "[onload]", "a[href^=javascript]"):
        assert page.evaluate(f"{inside}.filter((root) => root.querySelector('{tag}')).length") == 0, tag
    assert page.locator("#output .rich .note").first.inner_text().startswith("This HTML holds scripts")
    link = page.locator("#output a", has_text="away")
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener noreferrer")
    page.locator("#output a", has_text="link").first.click()
    page.click("#clear")  # nothing lies over the page, or has made it invisible
    assert page.evaluate("window.hacked") is None and not editor.output


def test_what_is_shown_is_bounded(editor: Editor) -> None:
    """An update that the page has not drawn is overtaken by the next; of many elements the last are kept."""
    editor.run("""
from IPython.display import HTML
handle = display(HTML("<b>0</b>"), display_id=True)
for i in range(20_000):
    handle.update(HTML(f"<b>{i}</b>"))
print("end")
""")
    editor.page.wait_for_function(
        "document.querySelector('#output .markup').shadowRoot.querySelector('b')?.textContent === '19999'"
    )
    editor.run("from IPython.display import HTML\nfor i in range(5_000):\n    display(HTML(f'<b>{i}</b>'))\n")
    assert "lines dropped" in editor.output
    assert editor.page.locator("#output .rich").count() < 1000
    editor.page.get_by_text("4999", exact=True).wait_for()


# The parts of matplotlib that a backend meets; the real one comes from Pyodide's distribution, which tests do not fetch.
MATPLOTLIB = """
import os, sys, types
def module(name, **names):
    made = sys.modules[name] = types.ModuleType(name)
    made.__dict__.update(names)
    if "." in name: setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], made)
class Axes:
    get_title = lambda self: "Loss"
    get_xlabel = lambda self: "step"
    get_ylabel = lambda self: "nats"
class Figure:
    __module__ = "matplotlib.figure"
    def get_axes(self): return [Axes()]
    def get_facecolor(self): return "white"
    def savefig(self, file, format, **options): file.write(PNG)
class Gcf:
    figures = []
    @classmethod
    def get_all_fig_managers(cls):
        return [types.SimpleNamespace(canvas=types.SimpleNamespace(figure=figure)) for figure in cls.figures]
    @classmethod
    def destroy_all(cls): cls.figures.clear()
def backend():
    import importlib
    return importlib.import_module(os.environ["MPLBACKEND"].removeprefix("module://"))
module("matplotlib")
module("matplotlib._pylab_helpers", Gcf=Gcf)
module("matplotlib.backends")
module("matplotlib.backends.backend_agg", FigureCanvasAgg=object)
module("matplotlib.pyplot", figure=lambda: Gcf.figures.append(Figure()), show=lambda: backend().show())
"""


def test_figures(editor: Editor) -> None:
    """Of matplotlib: by plt.show(), and at the end those that are open, once each."""
    code = "import matplotlib.pyplot as plt\nplt.figure()\nplt.figure()\nplt.show()\nprint('between')\nplt.figure()\n"
    editor.run(f"PNG = {PNG!r}\n{MATPLOTLIB}\n{code}")
    images = shown(editor, "img", 3)
    assert images.first.get_attribute("alt") == "Figure: Loss: nats over step"
    kinds = editor.page.locator("#output > *").evaluate_all("all => all.map((e) => e.className || e.textContent)")
    order = [kind if kind == "rich" else "between" for kind in kinds if kind == "rich" or kind.endswith("between\n")]
    assert order == ["rich", "rich", "between", "rich"]
    assert editor.run("import sys\nsys.modules.pop('matplotlib.pyplot', None)\nprint('over')") == "over\n"


PICTURE = """
import tabtorch, torch
x = torch.zeros(3, 8, 8, device="cuda" if torch.cuda.is_available() else "cpu")
x[0] = 1
tabtorch.show(x, scale=5, title="All red", name="picture")
print("below")
"""
PIXEL = """e => {
  const canvas = Object.assign(document.createElement("canvas"), { width: e.naturalWidth, height: e.naturalHeight });
  const context = canvas.getContext("2d");
  context.drawImage(e, 0, 0);
  return [e.naturalWidth, e.naturalHeight, e.width, e.height, ...context.getImageData(1, 1, 1, 1).data];
}"""


def test_a_picture_of_a_tensor(editor: Editor) -> None:
    editor.run(PICTURE)
    image = editor.page.get_by_role("img", name="1 image, 8 by 8, values 0 to 1", exact=True)
    image.evaluate("e => e.decode()")
    assert image.evaluate(PIXEL) == [8, 8, 40, 40, 255, 0, 0, 255]
    assert image.evaluate("e => getComputedStyle(e).imageRendering") == "pixelated"
    assert editor.output == "All redbelow\n"
    # the same name, later: where the first was
    editor.enter("tabtorch.show(torch.rand(4, 6, 6), cmap='magma', name='picture')")
    maps = editor.page.get_by_role("img", name="4 maps, 6 by 6 each, 4 in a row, in magma")
    maps.wait_for()
    assert shown(editor, "img").count() == 1 and editor.output.startswith("below\n")


def test_a_chart(editor: Editor) -> None:
    page = editor.page
    editor.run("""
import tabtorch, torch
w = torch.ones(4, requires_grad=True)
for step in range(200):
    loss = (w ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
    tabtorch.plot("loss", train=loss, test=loss * 2 if step != 50 else float("nan"), xlabel="step")
print(f"ends at {loss.item():.3e}")
""")
    chart = shown(editor, ".chart")
    plot = chart.get_by_role("img")
    plot.wait_for()
    assert "train" in (label := plot.get_attribute("aria-label")) and "200 points" in label and "1 not finite" in label
    page.wait_for_function("document.querySelectorAll('.u-legend .u-value')[0]?.textContent === '199'")
    labels = [text.strip() for text in chart.locator(".u-legend .u-label").all_inner_texts()]
    assert labels == ["step", "train", "test"]
    # by keyboard: values are said, and shown in the legend
    plot.focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('.chart .said').textContent === '0: train 1, test 2'")
    page.keyboard.press("ArrowRight")
    assert not chart.locator(".said").inner_text().startswith("0:")
    # by pointer
    page.locator(".chart .u-over").hover()
    page.wait_for_function(
        "(v => 50 < v && v < 150)(Number(document.querySelectorAll('.u-legend .u-value')[0].textContent))"
    )
    switch = chart.get_by_role("button", name="Log scale")
    assert switch.get_attribute("aria-pressed") == "false"
    switch.click()
    assert switch.get_attribute("aria-pressed") == "true" and page.locator(".chart .uplot").count() == 1
    # from the prompt it goes on where it is, as the reader has set it
    editor.enter("tabtorch.plot('loss', train=5)")
    page.wait_for_function("document.querySelector('.chart [role=img]').ariaLabel.includes('201 points')")
    assert page.locator(".chart").count() == 1 and switch.get_attribute("aria-pressed") == "true"
    # the next script's is another
    editor.run("import tabtorch\ntabtorch.plot('loss', 1.5)\n")
    page.wait_for_function(
        "document.querySelector('.chart [role=img]')?.ariaLabel === 'Chart loss: 1.5 at 0, 1 point, from 1.5 to 1.5'"
    )


def test_a_chart_is_drawn_while_the_script_runs(editor: Editor) -> None:
    """Nothing waits for the end, and Stop leaves it as it was."""
    editor.start("import tabtorch\ni = 0\nwhile True:\n    tabtorch.plot('count', i)\n    i += 1\n")
    editor.page.wait_for_function(
        "/[0-9]{2,} at/.test(document.querySelector('.chart [role=img]')?.ariaLabel ?? '')", timeout=60_000
    )
    first = editor.page.locator(".chart [role=img]").get_attribute("aria-label")
    editor.page.wait_for_function("(was) => document.querySelector('.chart [role=img]').ariaLabel !== was", arg=first)
    editor.stop()
    assert editor.page.locator(".chart").count() == 1 and "KeyboardInterrupt" in editor.output


def test_what_is_shown_is_for_everyone(editor: Editor) -> None:
    """axe, dark and light, on the desktop and on a phone, where it is no wider than the screen."""
    code = (
        "display({'text/html': '<table><tr><th>a</th></tr><tr><td>1</td></tr></table>', 'text/plain': ''}, raw=True)\n"
    )
    chart = "for i in range(60):\n    tabtorch.plot('loss', train=1 / (i + 1), test=0.5, ylabel='nats')\n"
    editor.run(PICTURE + code + chart)
    editor.page.locator(".chart canvas").wait_for()
    assert findings(editor.page, "#output") == {}


def test_bars(editor: Editor) -> None:
    """`tqdm.notebook` wants Jupyter's widgets; where they are not its bars are those in text."""
    output = editor.run("""
import os, shutil, sys
os.makedirs("bars/tqdm", exist_ok=True)
for name, text in {"__init__": "", "std": "tqdm = trange = 'text'", "notebook": "import ipywidgets"}.items():
    open(f"bars/tqdm/{name}.py", "w").write(text)
sys.path.insert(0, "bars")
from tqdm.notebook import tqdm, trange
print(tqdm, trange)
shutil.rmtree("bars")
""")
    assert output == "text text\n"


def test_in_a_terminal(runner: Any) -> None:
    """`tabtorch run` shows the same as text."""
    done = run_script(
        runner,
        "from IPython.display import HTML, Pretty, clear_output\n"
        "display(HTML('<b>x</b>'), Pretty('as it is'), 3)\nclear_output()\ndisplay(4, display_id='four')\n"
        "import tabtorch\ntabtorch.show([[0, 1]])\nfor i in range(9): tabtorch.plot('loss', i)\n",
    )
    assert done.stderr == ""
    shown = "<IPython.core.display.HTML object>\nas it is\n3\n4\n1 image, 1 by 2, values 0 to 1\n"
    assert done.stdout.startswith(f"{shown}loss: 0 at 0\n")
    assert done.stdout.count("loss: 8 at 8\n") == 1 and done.stdout.count("\u2502") > 10  # at the end, in characters
