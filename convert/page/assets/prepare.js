// Preparation of pictures: resized, cropped, padded and normalized, as Pillow does, but widths are always resized
// before heights: the other order changes bytes by one, and by a few where a cubic filter overshoots.

const truncated = Math.trunc;

// The nearest integer, halves to even.
function rounded(value) {
  const below = Math.floor(value), share = value - below;
  return share < 0.5 || (share === 0.5 && below % 2 === 0) ? below : below + 1;
}

const fitting = (rule, height, width) => Math.min(rule.height / height, rule.width / width);

// The height and width that a picture gets, from its own, by the name of the rule.
const RULES = {
  Exact: rule => [rule.height, rule.width],
  ShortestEdge: ({ length }, height, width) => width <= height
    ? [truncated(length * height / width), length] : [length, truncated(length * width / height)],
  EdgesWithin({ shortest, longest, multiple }, height, width) {
    const short = Math.min(height, width), long = Math.max(height, width);
    const limited = long / short * shortest > longest;
    const exact = limited ? longest * short / long : shortest;
    const length = limited ? rounded(exact) : shortest;
    const found = short === length ? [height, width]
      : width < height ? [truncated(exact * height / width), length] : [length, truncated(exact * width / height)];
    return found.map(edge => edge - edge % multiple);
  },
  LongestEdge({ length }, height, width) {
    const scale = length / Math.max(height, width);
    return [truncated(height * scale + 0.5), truncated(width * scale + 0.5)];
  },
  Within(rule, height, width) {
    const scale = fitting(rule, height, width);
    return [truncated(height * scale), truncated(width * scale)];
  },
  Letterbox(rule, height, width) {
    const scale = fitting(rule, height, width);
    return [rounded(height * scale), rounded(width * scale)];
  },
  Ratio(rule, height, width) {
    const ratios = [height / rule.height, width / rule.width];
    const ratio = rule.inside ? Math.max(...ratios) : Math.min(...ratios);
    return [rounded(height / ratio), rounded(width / ratio)];
  },
  Multiples(rule, height, width) {
    let down = rule.height / height, across = rule.width / width;
    if (rule.keep_proportions) down = across = Math.abs(1 - across) < Math.abs(1 - down) ? across : down;
    return [down * height, across * width].map(length => {
      const near = rounded(length / rule.multiple) * rule.multiple;
      return near > 0 ? near : Math.ceil(length / rule.multiple) * rule.multiple;
    });
  },
  Divisible: ({ divisor }, height, width) => [height - height % divisor, width - width % divisor],
};

const sinc = x => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

// Support and weights of filters by Pillow's numbers, but for nearest, which is 0.
const FILTERS = {
  1: [3, x => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0)],
  2: [1, x => Math.max(0, 1 - Math.abs(x))],
  3: [2, x => {
    const y = Math.abs(x), a = -0.5;
    return y < 1 ? ((a + 2) * y - (a + 3)) * y * y + 1 : y < 2 ? (((y - 5) * y + 8) * y - 4) * a : 0;
  }],
  4: [0.5, x => (x > -0.5 && x <= 0.5 ? 1 : 0)],
  5: [1, x => {
    const y = Math.abs(x);
    return y === 0 ? 1 : y >= 1 ? 0 : sinc(y) * (0.54 + 0.46 * Math.cos(Math.PI * y));
  }],
};
const BITS = 22;

// For each new position along an axis the first old one and the weights from there on, as integers of 22 bits.
function weights(number, length, count) {
  const [reach, weigh] = FILTERS[number];
  const scale = length / count, stretch = Math.max(scale, 1), support = reach * stretch;
  return Array.from({ length: count }, (_, at) => {
    const center = (at + 0.5) * scale;
    const first = Math.max(0, truncated(center - support + 0.5));
    const last = Math.min(length, truncated(center + support + 0.5));
    const shares = Array.from({ length: last - first }, (_, tap) => weigh((tap + first - center + 0.5) / stretch));
    const sum = shares.reduce((a, b) => a + b, 0);
    return [first, shares.map(each => {
      const share = each / sum * 2 ** BITS;
      return truncated(share < 0 ? share - 0.5 : share + 0.5);
    })];
  });
}

// Bytes [rows, length, inner] with another length of the middle axis.
function alongAxis(bytes, rows, length, inner, count, number) {
  const found = new Uint8ClampedArray(rows * count * inner);
  weights(number, length, count).forEach(([first, taps], at) => {
    for (let row = 0; row < rows; row++) {
      for (let each = 0; each < inner; each++) {
        let sum = 2 ** (BITS - 1);
        for (let tap = 0; tap < taps.length; tap++) sum += bytes[(row * length + first + tap) * inner + each] * taps[tap];
        found[(row * count + at) * inner + each] = Math.floor(sum / 2 ** BITS);
      }
    }
  });
  return found;
}

// Positions of the four nearest pixels and their shares in f32, as OpenCV's.
function neighbors(length, count) {
  return Array.from({ length: count }, (_, at) => {
    const position = Math.max(0, (at + 0.5) * length / count - 0.5);
    const first = Math.min(Math.floor(position), length - 1);
    return [first, Math.min(first + 1, length - 1), Math.fround(position - first)];
  });
}

function twoByTwo(bytes, height, width, rows, columns) {
  const found = new Uint8ClampedArray(rows * columns * 3);
  const across = neighbors(width, columns);
  neighbors(height, rows).forEach(([above, below, down], row) => across.forEach(([left, right, share], column) => {
    for (let channel = 0; channel < 3; channel++) {
      const [a, b] = [left, right].map(at => {
        const upper = bytes[(above * width + at) * 3 + channel], lower = bytes[(below * width + at) * 3 + channel];
        return Math.fround(upper + Math.fround(Math.fround(lower - upper) * down));
      });
      const value = Math.fround(a + Math.fround(Math.fround(b - a) * share));
      found[(row * columns + column) * 3 + channel] = rounded(value);
    }
  }));
  return found;
}

function nearest(bytes, height, width, rows, columns) {
  const found = new Uint8ClampedArray(rows * columns * 3);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const from = Math.floor((row + 0.5) * height / rows) * width + Math.floor((column + 0.5) * width / columns);
      found.set(bytes.subarray(3 * from, 3 * from + 3), 3 * (row * columns + column));
    }
  }
  return found;
}

function resize(bytes, height, width, rows, columns, filter) {
  if (height === rows && width === columns) return bytes;
  if (filter === -1) return twoByTwo(bytes, height, width, rows, columns);
  if (filter === 0) return nearest(bytes, height, width, rows, columns);
  const wide = width === columns ? bytes : alongAxis(bytes, height, width, 3, columns, filter);
  return height === rows ? wide : alongAxis(wide, 1, height, columns * 3, rows, filter);
}

// Where a centre crop begins, from the difference of lengths.
const HALVED = {
  floor: difference => Math.floor(difference / 2),
  torchvision: difference => (difference > 0 ? rounded(difference / 2) : -Math.floor(-difference / 2)),
};

// A picture of bytes [height, width, 3] as a model is fed with it: `values` f32 [3, ...box], the size `resized` that it
// was resized to, and its upper left `corner` there.
export function prepared({ resize: rule, filter, crop, halved, fill, factor, shift, bgr, padding }, bytes, height, width) {
  const resized = rule ? RULES[rule.rule](rule, height, width) : [height, width];
  if (Math.min(...resized) < 1) throw new Error(`a picture of ${width} x ${height} is too narrow`);
  const pixels = resize(bytes, height, width, ...resized, filter);
  let size = crop || resized;
  let corner = crop ? resized.map((length, axis) => -HALVED[halved](length - crop[axis]) || 0) : [0, 0];
  let inner = [0, 0], box = size;
  if (padding) {
    box = (padding.size || size).map(length => Math.ceil(length / padding.divisor) * padding.divisor);
    if (size.some((length, axis) => length > box[axis])) throw new Error(`${size} does not fit into ${box}`);
    if (padding.centered) inner = box.map((length, axis) => Math.floor((length - size[axis]) / 2));
  }
  const values = new Float32Array(3 * box[0] * box[1]);
  const of = (list, channel) => list[list.length === 1 ? 0 : channel];
  for (let channel = 0; channel < 3; channel++) {
    const source = bgr ? 2 - channel : channel;
    const scale = Math.fround(of(factor, channel)), offset = Math.fround(of(shift, channel));
    const plane = values.subarray(channel * box[0] * box[1], (channel + 1) * box[0] * box[1]);
    if (padding?.black) plane.fill(offset);
    for (let row = 0; row < size[0]; row++) {
      for (let column = 0; column < size[1]; column++) {
        const y = row - corner[0], x = column - corner[1];
        const inside = y >= 0 && x >= 0 && y < resized[0] && x < resized[1];
        const byte = inside ? pixels[3 * (y * resized[1] + x) + source] : of(fill, source);
        plane[(row + inner[0]) * box[1] + column + inner[1]] = Math.fround(byte * scale) + offset;
      }
    }
  }
  return { values, box, resized, corner: corner.map((each, axis) => each + inner[axis]) };
}

// A placement with `toPicture` and `toInput`, which move a point [x, y] between a model's input and the picture.
export function placed(at) {
  const { resized, corner, width, height } = at;
  const scale = [Math.fround(resized[1] / width), Math.fround(resized[0] / height)];
  const clip = (value, most) => Math.min(Math.max(value, 0), most);
  return {
    ...at,
    toPicture: ([x, y]) => [clip((x - corner[1]) / scale[0], width), clip((y - corner[0]) / scale[1], height)],
    toInput: ([x, y]) => [x * scale[0] + corner[1], y * scale[1] + corner[0]],
  };
}
