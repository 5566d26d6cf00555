// Reads the drawing with every stroke: the part that is drawn on, scaled to 8 x 8 grey levels, as
// the pictures are that the network was trained on.
import {load} from './mcc.mjs';

const SIDE = 8, PEN = 36;
const pad = document.getElementById('pad'), pen = pad.getContext('2d', {willReadFrequently: true});
const seen = document.getElementById('seen').getContext('2d');
const [answer, time, error, bars] = ['answer', 'time', 'error', 'bars'].map(id => document.getElementById(id));
const rows = Array.from({length: 10}, (_, digit) => {
  const row = bars.appendChild(document.createElement('li'));
  row.append(String(digit), document.createElement('i'), document.createElement('span'));
  return row;
});

// The box around the ink, as {left, top, width, height}; null: nothing is drawn.
export function boxOf(ink, width, height) {
  let left = width, right = -1, top = height, bottom = -1;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (ink[y * width + x] > 0) {
        left = Math.min(left, x), right = Math.max(right, x);
        top = Math.min(top, y), bottom = Math.max(bottom, y);
      }
  return right < 0 ? null : {left, top, width: right - left + 1, height: bottom - top + 1};
}

// The mean ink, 0 to 1, of each of the 8 x 8 cells of a square around the box.
export function shrink(ink, width, height, box) {
  const size = Math.max(box.width, box.height), cell = size / SIDE;
  const x0 = box.left + (box.width - size) / 2, y0 = box.top + (box.height - size) / 2;
  const sum = new Float32Array(SIDE * SIDE), count = new Float32Array(SIDE * SIDE);
  for (let y = Math.floor(y0); y < y0 + size; y++)
    for (let x = Math.floor(x0); x < x0 + size; x++) {
      const row = Math.min(SIDE - 1, Math.max(0, Math.floor((y - y0) / cell)));
      const at = row * SIDE + Math.min(SIDE - 1, Math.max(0, Math.floor((x - x0) / cell)));
      sum[at] += x >= 0 && y >= 0 && x < width && y < height ? ink[y * width + x] / 255 : 0;
      count[at]++;
    }
  return sum.map((s, i) => count[i] ? s / count[i] : 0);
}

function show(probability, cells) {
  const best = probability.indexOf(Math.max(...probability)), image = seen.createImageData(SIDE, SIDE);
  rows.forEach((row, digit) => {
    row.className = digit === best ? 'best' : '';
    row.children[0].style.width = `${10 * probability[digit]}rem`;
    row.children[1].textContent = `${Math.round(100 * probability[digit])} %`;
  });
  answer.textContent = String(best);
  cells.forEach((c, i) => image.data.set([128, 128, 128, 255 * c], 4 * i));
  seen.putImageData(image, 0, 0);
}

function clear() {
  pen.clearRect(0, 0, pad.width, pad.height);
  seen.clearRect(0, 0, SIDE, SIDE);
  answer.textContent = time.textContent = '';
  for (const row of rows) row.className = row.children[0].style.width = row.children[1].textContent = '';
}

function start(net) {
  const [input] = net.inputs, [output] = net.outputs;
  const look = () => {
    const pixels = pen.getImageData(0, 0, pad.width, pad.height).data, ink = pixels.filter((_, i) => i % 4 === 3);
    const box = boxOf(ink, pad.width, pad.height);
    if (!box) return;
    const cells = shrink(ink, pad.width, pad.height, box), begun = performance.now();
    const probability = net.run({[input.name]: cells})[output.name];
    time.textContent = `${(1000 * (performance.now() - begun)).toFixed(0)} µs`;
    show([...probability], cells);
  };
  let last = null;
  const stroke = ({offsetX: x, offsetY: y}) => {
    pen.lineWidth = PEN;
    pen.lineCap = pen.lineJoin = 'round';
    pen.strokeStyle = getComputedStyle(document.body).color;
    pen.beginPath();
    pen.moveTo(...(last ?? [x, y]));
    pen.lineTo(x, y);
    pen.stroke();
    last = [x, y];
    look();
  };
  pad.addEventListener('pointerdown', e => (pad.setPointerCapture(e.pointerId), last = null, stroke(e)));
  pad.addEventListener('pointermove', e => e.buttons & 1 && stroke(e));
  document.getElementById('clear').addEventListener('click', clear);
}

try {
  start(await load(new URL('digits.wasm', import.meta.url)));
  document.body.dataset.ready = 'yes';
} catch (reason) {
  error.textContent = reason.message;
}
