// Square heat maps on a canvas: row = the position that reads, column = the position that is read, oldest first.

const LARGEST_CELL = 44;

function fit(canvas, count) {
  canvas.style.maxWidth = `${Math.min(420, count * LARGEST_CELL)}px`;
  const size = Math.max(40, canvas.clientWidth), scale = window.devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(size * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, size, size);
  return [pen, size];
}

// value(query, key) gives {level: 0..1, cut} or null where there is no link; marked is the row to frame
function drawMatrix(canvas, count, value, marked) {
  const [pen, size] = fit(canvas, count);
  const cell = size / count;
  const kept = color("kept"), cut = color("cut");
  pen.fillStyle = color("soft");
  pen.fillRect(0, 0, size, size);
  for (let query = 0; query < count; query += 1) {
    for (let key = 0; key < count; key += 1) {
      const entry = value(query, key);
      const x = key * cell, y = query * cell;
      if (entry === null) {
        pen.fillStyle = color("panel");
        pen.fillRect(x, y, cell + 0.5, cell + 0.5);
      } else if (entry.cut) {
        pen.strokeStyle = cut;
        pen.lineWidth = Math.min(1.4, Math.max(0.6, cell / 9));
        pen.beginPath();
        pen.moveTo(x + cell * 0.22, y + cell * 0.22);
        pen.lineTo(x + cell * 0.78, y + cell * 0.78);
        pen.moveTo(x + cell * 0.78, y + cell * 0.22);
        pen.lineTo(x + cell * 0.22, y + cell * 0.78);
        pen.stroke();
      } else {
        pen.globalAlpha = Math.min(1, entry.level);
        pen.fillStyle = kept;
        pen.fillRect(x, y, cell, cell);
        pen.globalAlpha = 1;
      }
    }
  }
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  pen.strokeRect(0.5, 0.5, size - 1, size - 1);
  if (marked !== null) {
    pen.strokeStyle = color("pick");
    pen.lineWidth = 2;
    pen.strokeRect(1, Math.max(1, marked * cell), size - 2, Math.max(3, Math.min(cell, size - marked * cell - 1)));
  }
}

function cellAt(canvas, event, count) {
  const box = canvas.getBoundingClientRect();
  const place = (offset, length) => Math.min(count - 1, Math.max(0, Math.floor((offset / length) * count)));
  return [place(event.clientY - box.top, box.height), place(event.clientX - box.left, box.width)];
}
