/** The autograd graph of a value, drawn: the result above, what it was made of below, down to the leaves. */
import type { State } from "../session";
import { button, make, short, svg } from "./make";
import type { Around, View } from "./panel";
import source from "./tabinspect.py?raw";

type Node = [kind: "operation" | "leaf", name: string, more: string];

interface Graph {
  problem?: string;
  nodes: Node[];
  edges: [from: number, to: number][];
  left_out: number;
}

const LINE = 17;
const LETTER = 7.3;
const ZOOMS = [0.25, 0.4, 0.6, 0.8, 1, 1.4, 2];

export class Tape implements View {
  readonly title = "Autograd";
  readonly element = make("div", { className: "tape" });
  readonly #field = make("input", {
    type: "text",
    value: "loss",
    spellcheck: false,
    autocomplete: "off",
    autocapitalize: "off",
    id: "tape-expression",
  });
  readonly #submit = make("button", { type: "submit", className: "primary" }, "Draw");
  readonly #words = make("p", { className: "hint", role: "status" });
  readonly #result = make("div");
  #zoom = ZOOMS.indexOf(1);

  constructor(private readonly around: Around) {
    const form = make(
      "form",
      { className: "inspector-head" },
      make("label", { for: "tape-expression" }, "Tensor"),
      this.#field,
      this.#submit,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void around.attempt(this, () => this.#draw(this.#field.value));
    });
    this.#words.textContent =
      "A variable of the script after its run, or any expression: the graph that backward() would go through.";
    this.element.append(form, this.#words, this.#result);
    this.onState(around.session.state);
  }

  onState(state: State): void {
    this.#submit.disabled = state !== "ready";
  }

  async #draw(expression: string): Promise<void> {
    const { session } = this.around;
    const graph = JSON.parse((await session.inspect(source, "tape", expression)) as string) as Graph;
    this.#result.replaceChildren();
    if (graph.problem !== undefined) throw new Error(graph.problem);
    const { nodes, edges, left_out } = graph;
    const leaves = nodes.filter(([kind]) => kind === "leaf").length;
    this.#words.textContent = [
      `${counted(nodes.length - leaves, "operation")}, ${counted(leaves, "leaf", "leaves")}`,
      ...(left_out ? [`${short(left_out)} more nodes, the farthest, are left out`] : []),
    ].join(" · ");
    const picture = await drawing(graph, expression);
    const scroller = make("div", { className: "graph", role: "region", tabIndex: 0, ariaLabel: "Graph" });
    scroller.append(picture);
    const scale = (by: number) => {
      this.#zoom = Math.max(0, Math.min(ZOOMS.length - 1, this.#zoom + by));
      const { width, height } = picture.viewBox.baseVal;
      picture.setAttribute("width", String(width * (ZOOMS[this.#zoom] as number)));
      picture.setAttribute("height", String(height * (ZOOMS[this.#zoom] as number)));
    };
    const zoom = (label: string, name: string, by: number) =>
      button(label, () => scale(by), { ariaLabel: name, title: name });
    const tools = make("div", { className: "inspector-head" }, zoom("+", "Larger", 1), zoom("−", "Smaller", -1));
    const text = edges.map(([from, to]) => `${nodes[from]?.[1]} ← ${nodes[to]?.[1]} ${nodes[to]?.[2]}`.trimEnd());
    const list = make("pre", { tabIndex: 0, role: "region", ariaLabel: "Graph as text" }, text.join("\n"));
    this.#result.append(tools, scroller, make("details", {}, make("summary", {}, "As text"), list));
    scale(0);
    scroller.scrollLeft = (scroller.scrollWidth - scroller.clientWidth) / 2;
  }
}

function counted(count: number, one: string, many = `${one}s`): string {
  return `${short(count)} ${count === 1 ? one : many}`;
}

async function drawing({ nodes, edges }: Graph, expression: string): Promise<SVGSVGElement> {
  const { Graph, layout } = await import("@dagrejs/dagre");
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 30, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const [at, [, name, more]] of nodes.entries()) {
    const width = 20 + LETTER * Math.max(name.length, more.length);
    graph.setNode(String(at), { width, height: 12 + LINE * (more ? 2 : 1) });
  }
  for (const [at, [from, to]] of edges.entries()) graph.setEdge(String(from), String(to), {}, String(at));
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  const picture = svg("svg", {
    viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`,
    role: "img",
    "aria-label": `Autograd graph of ${expression}: ${nodes.length} nodes, ${edges.length} edges`,
  });
  const arrow = svg("marker", {
    id: "tape-arrow",
    viewBox: "0 0 8 8",
    refX: 8,
    refY: 4,
    markerWidth: 7,
    markerHeight: 7,
    orient: "auto",
  });
  arrow.append(svg("path", { d: "M0 0 8 4 0 8z" }));
  picture.append(svg("defs", {}, arrow));
  for (const edge of graph.edges()) {
    const points = (graph.edge(edge) as { points: { x: number; y: number }[] }).points;
    picture.append(svg("path", { class: "edge", d: curve(points), "marker-end": "url(#tape-arrow)" }));
  }
  for (const [at, node] of nodes.entries()) picture.append(nodeOf(node, graph.node(String(at)) as Box));
  return picture;
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

function nodeOf([kind, name, more]: Node, { x, y, width, height }: Box): SVGGElement {
  const box = svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: kind === "leaf" ? 3 : 9 });
  const group = svg("g", { class: kind }, box);
  for (const [line, words] of [name, more].filter(Boolean).entries()) {
    const offset = (line - (more ? 0.5 : 0)) * LINE;
    group.append(svg("text", { x, y: y + offset, class: line ? "more" : "name" }, words));
  }
  return group;
}

/** Through the points, with no corners: each is what a quadratic curve between the middles of two pieces leans to. */
function curve(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points.map(({ x, y }) => [x, y] as const);
  if (!first) return "";
  const parts = [`M${first[0]} ${first[1]}`];
  for (const [at, [x, y]] of rest.entries()) {
    const next = rest[at + 1];
    if (next) parts.push(`Q${x} ${y} ${(x + next[0]) / 2} ${(y + next[1]) / 2}`);
    else parts.push(`L${x} ${y}`);
  }
  return parts.join("");
}
