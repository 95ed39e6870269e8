// Redraws the engine lanes for another window of time: buttons, keys, drag, wheel with Ctrl, double click.
// The pictures are those that lanes.py draws; without this script the page shows the first of them.
(() => {
  const WIDTH = 1120, LEFT = 92, RIGHT = 28, TOP = 6, SHORT = 10, BINS = 640, BLOCKS = 900;
  const SVG = "http://www.w3.org/2000/svg";
  const inner = WIDTH - LEFT - RIGHT;

  const four = x => {
    if (x === 0) return "0";
    return Number(x.toPrecision(4)).toString();
  };
  const duration = ns => {
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
      if (Math.abs(ns) >= size * (1 - 5e-5)) return `${four(ns / size)} ${unit}`;
    return `${four(ns)} ns`;
  };
  // Formats a time so that times one step apart differ.
  const moment = (ns, step, largest) => {
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([u, s]) => u === "ns" || Math.abs(largest) >= s * (1 - 5e-5));
    return `${(ns / size).toFixed(Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)))} ${unit}`;
  };
  const make = (name, attributes, content) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (content !== undefined) node.textContent = content;
    return node;
  };
  const ticks = (start, end, about = 8) => {
    let step = 10 ** Math.floor(Math.log10((end - start) / about));
    step *= [1, 2, 5, 10].find(m => (end - start) / (m * step) <= about);
    const marks = [];
    for (let k = Math.ceil(start / step - 1e-9); k * step <= end * (1 + 1e-12); k++) marks.push(k * step);
    return marks;
  };
  // First index whose value is not below x, in a sorted array.
  const search = (values, x) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < x) low = middle + 1; else high = middle;
    }
    return low;
  };

  const prepare = lane => {
    let t = 0;
    lane.begin = Float64Array.from(lane.start, d => (t += d));
    lane.end = Float64Array.from(lane.length, (d, k) => lane.begin[k] + d);
    // The latest end so far locates the start of a window even if events overlap.
    let reach = -Infinity;
    lane.reach = Float64Array.from(lane.end, e => (reach = Math.max(reach, e)));
    lane.isWait = new Set(lane.waits);
    return lane;
  };

  const box = (x, width, lane) => `M${x.toFixed(2)} ${lane.top}h${width.toFixed(2)}v${lane.height}h${(-width).toFixed(2)}z`;

  const blocks = (lane, first, last, x) => {
    const paths = ["", "", "", ""];
    let waits = "";
    const y = lane.top + lane.height - 4;
    for (let k = first; k < last; k++) {
      const left = x(lane.begin[k]), right = x(lane.end[k]);
      if (right > LEFT || lane.begin[k] === lane.end[k])
        paths[lane.isWait.has(lane.op[k]) ? 3 : lane.op[k] % 3] += box(left, Math.max(right - left - 0.6, 0.5), lane);
      const late = x(lane.begin[k] - lane.stall[k]);
      if (left - late > 0.3 && lane.height > SHORT)
        waits += `M${late.toFixed(2)} ${y}h${(left - late).toFixed(2)}v3h${(late - left).toFixed(2)}z`;
    }
    const drawnPaths = paths.map((d, k) => [d, `s${k}`]).filter(([d]) => d);
    if (waits) drawnPaths.push([waits, "wait"]);
    return drawnPaths;
  };

  const shares = (lane, first, last, window, x) => {
    const busy = new Float64Array(BINS), width = (window[1] - window[0]) / BINS;
    let reach = -Infinity;
    for (let k = first; k < last; k++) {
      if (lane.isWait.has(lane.op[k])) continue;
      const start = Math.max(lane.begin[k], reach, window[0]), end = Math.min(lane.end[k], window[1]);
      reach = Math.max(reach, lane.end[k]);
      for (let b = Math.floor((start - window[0]) / width); b < BINS && window[0] + b * width < end; b++) {
        const low = window[0] + b * width;
        busy[b] += Math.max(Math.min(end, low + width) - Math.max(start, low), 0);
      }
    }
    const bottom = lane.top + lane.height;
    let d = `M${LEFT} ${bottom}`;
    for (let b = 0; b < BINS; b++) {
      const y = bottom - Math.min(busy[b] / width, 1) * lane.height;
      d += `V${y.toFixed(2)}H${(LEFT + (b + 1) / BINS * inner).toFixed(2)}`;
    }
    return [[`${d}V${bottom}Z`, "s0"]];
  };

  const attach = (svg, lanes, box) => {
    const whole = [Number(svg.dataset.from), Number(svg.dataset.to)];
    const home = [Number(svg.dataset.start), Number(svg.dataset.end)];
    const bottom = Number(svg.dataset.bottom);
    let window = [...home];
    const readout = box.querySelector(".readout"), shown = box.querySelector(".window");
    const bodies = [...svg.querySelectorAll(".body")];

    const draw = () => {
      const x = t => LEFT + (Math.min(Math.max(t, window[0]), window[1]) - window[0]) / (window[1] - window[0]) * inner;
      lanes.forEach((lane, row) => {
        const first = search(lane.reach, window[0]);
        const last = search(lane.begin, window[1]);
        const drawn = last - first <= BLOCKS ? blocks(lane, first, Math.min(last + 1, lane.begin.length), x)
          : shares(lane, first, last, window, x);
        bodies[row].replaceChildren(...drawn.map(([d, shade]) => make("path", {d, class: shade})));
      });
      const axis = svg.querySelector(".axis");
      const times = ticks(...window), width = window[1] - window[0];
      const step = times.length > 1 ? times[1] - times[0] : width;
      axis.replaceChildren(...times.flatMap(t => {
        const at = x(t);
        return [make("line", {x1: at, x2: at, y1: TOP, y2: bottom + 4, class: "grid"}),
          make("text", {x: at, y: bottom + 20, class: "tick", "text-anchor": "middle"}, moment(t, step, window[1]))];
      }));
      if (shown) shown.textContent = `${moment(window[0], width / 1000, window[1])} to ${moment(window[1], width / 1000, window[1])}, ${duration(width)} wide`;
    };
    let due = false;
    const show = next => {
      const width = Math.min(Math.max(next[1] - next[0], 20), whole[1] - whole[0]);
      const start = Math.min(Math.max(next[0], whole[0]), whole[1] - width);
      window = [start, start + width];
      if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
    };
    const zoom = (factor, at = (window[0] + window[1]) / 2) =>
      show([at - (at - window[0]) * factor, at + (window[1] - at) * factor]);
    const pan = part => {
      const by = part * (window[1] - window[0]);
      show([window[0] + by, window[1] + by]);
    };
    const time = event => {
      const place = svg.getBoundingClientRect();
      const at = (event.clientX - place.left) / place.width * WIDTH;
      return window[0] + (at - LEFT) / inner * (window[1] - window[0]);
    };
    const acts = {in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25), all: () => show(whole), home: () => show(home)};
    box.querySelectorAll("[data-act]").forEach(button => button.addEventListener("click", () => acts[button.dataset.act]()));
    const keys = {ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", "0": "all", Home: "home"};
    svg.addEventListener("keydown", event => {
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); acts[keys[event.key]](); }
    });
    svg.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, time(event));
    }, {passive: false});
    svg.addEventListener("dblclick", event => zoom(0.4, time(event)));
    let grip = null;
    svg.addEventListener("pointerdown", event => { grip = [event.clientX, ...window]; svg.setPointerCapture(event.pointerId); });
    svg.addEventListener("pointerup", () => { grip = null; });
    svg.addEventListener("pointermove", event => {
      if (grip) {
        const by = (grip[0] - event.clientX) / svg.getBoundingClientRect().width * WIDTH / inner * (grip[2] - grip[1]);
        show([grip[1] + by, grip[2] + by]);
        return;
      }
      const place = svg.getBoundingClientRect(), t = time(event);
      const y = (event.clientY - place.top) / place.width * WIDTH;
      const lane = lanes.find(one => y >= one.top && y < one.top + one.height);
      readout.textContent = lane ? describe(lane, t) : "";
    });
    const describe = (lane, t) => {
      for (let k = Math.min(search(lane.begin, t), lane.begin.length) - 1; k >= 0 && lane.reach[k] > t; k--)
        if (lane.begin[k] <= t && t < lane.end[k]) {
          const parts = [lane.label, lane.ops[lane.op[k]], `at ${duration(lane.begin[k])} for ${duration(lane.length[k])}`];
          if (lane.stall[k] > 0) parts.push(`after ${duration(lane.stall[k])}: ${lane.causes[lane.cause[k]]}`);
          const name = lane.names[lane.name[k]];
          if (name) parts.push(name);
          return parts.join(" · ");
        }
      return `${lane.label} · idle at ${duration(t)}`;
    };
    box.classList.add("live");
    draw();
  };

  document.querySelectorAll(".timeline").forEach(box => {
    const lanes = JSON.parse(box.querySelector("script[type='application/json']").textContent).map(prepare);
    box.querySelectorAll(".view").forEach(view => attach(view.querySelector("svg.lanes"), lanes, view));
  });
})();
