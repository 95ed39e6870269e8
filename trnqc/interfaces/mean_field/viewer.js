// Draws a molecule on a canvas: spheres and bonds in depth order, turned by dragging, with frames or a vibration.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("molecule").textContent);
  const canvas = document.getElementById("viewer");
  const pen = canvas.getContext("2d");
  const steps = document.getElementById("steps");
  const modes = document.getElementById("modes");
  let angleX = -0.35, angleY = 0.5, zoom = 1, held = null, frame = steps ? Number(steps.value) - 1 : 0, mode = -1, idle = true;

  // Radii are those that the page was written with, in Angstrom.
  const centre = (xyz) => [0, 1, 2].map((k) => xyz.reduce((sum, p) => sum + p[k], 0) / xyz.length);
  const origin = centre(data.frames[frame]);
  const extent = 0.7 + Math.max(...data.frames.flat().map((p) => Math.hypot(...p.map((x, k) => x - origin[k]))));

  function turned(p) {
    const [x, y, z] = p.map((value, k) => value - origin[k]);
    const [cy, sy, cx, sx] = [Math.cos(angleY), Math.sin(angleY), Math.cos(angleX), Math.sin(angleX)];
    const [u, w] = [cy * x + sy * z, -sy * x + cy * z];
    return [u, cx * y - sx * w, sx * y + cx * w];
  }

  function positions(time) {
    const xyz = data.frames[frame];
    if (mode < 0) return xyz;
    const swing = 0.5 * Math.sin(time / 180);
    return xyz.map((p, a) => p.map((x, k) => x + swing * data.modes[mode][a][k]));
  }

  function draw(time) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
    if (canvas.width !== Math.round(width) || canvas.height !== Math.round(height)) {
      canvas.width = width;
      canvas.height = height;
    }
    const scale = zoom * Math.min(width, height) / (2 * extent);
    const points = positions(time).map(turned);
    const at = (p) => [width / 2 + scale * p[0], height / 2 - scale * p[1]];
    pen.clearRect(0, 0, width, height);
    const things = points.map((p, a) => ({ depth: p[2], a }));
    data.bonds.forEach(([a, b]) => {
      const middle = points[a].map((x, k) => (x + points[b][k]) / 2);
      [a, b].forEach((end) => things.push({ depth: (points[end][2] + middle[2]) / 2 - 0.05, end, middle }));
    });
    things.sort((one, other) => one.depth - other.depth);
    for (const thing of things) {
      if (thing.middle) {
        pen.strokeStyle = data.colours[thing.end];
        pen.lineWidth = 0.16 * scale;
        pen.lineCap = "round";
        pen.beginPath();
        pen.moveTo(...at(points[thing.end]));
        pen.lineTo(...at(thing.middle));
        pen.stroke();
        continue;
      }
      const [x, y] = at(points[thing.a]);
      const radius = data.radii[thing.a] * scale;
      const light = pen.createRadialGradient(x - radius / 3, y - radius / 3, radius / 8, x, y, radius);
      light.addColorStop(0, "#ffffff");
      light.addColorStop(0.35, data.colours[thing.a]);
      light.addColorStop(1, "#222222");
      pen.fillStyle = light;
      pen.beginPath();
      pen.arc(x, y, radius, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  function loop(time) {
    if (idle && !calm) angleY += 0.004;
    draw(time);
    if (mode >= 0 || (idle && !calm)) window.requestAnimationFrame(loop);
  }
  const wake = () => window.requestAnimationFrame(loop);

  canvas.addEventListener("pointerdown", (event) => {
    held = [event.clientX, event.clientY];
    idle = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    angleY += (event.clientX - held[0]) / 120;
    angleX += (event.clientY - held[1]) / 120;
    held = [event.clientX, event.clientY];
    if (mode < 0) wake();
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom *= Math.exp(-event.deltaY / 600);
    if (mode < 0) wake();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!turn) return;
    event.preventDefault();
    idle = false;
    angleX += 0.15 * turn[0];
    angleY += 0.15 * turn[1];
    if (mode < 0) wake();
  });
  if (steps) steps.addEventListener("input", () => {
    frame = Number(steps.value) - 1;
    steps.nextElementSibling.textContent = `step ${steps.value} of ${data.frames.length}`;
    wake();
  });
  if (modes) modes.addEventListener("change", () => {
    const moving = mode >= 0;
    mode = Number(modes.value);
    if (!moving) wake();
  });
  window.addEventListener("resize", wake);
  document.documentElement.classList.add("live");
  wake();
})();
