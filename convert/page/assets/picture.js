// Pictures: their bytes, what a model is fed with, and what is drawn on them.
import { placed, prepared } from "./prepare.js";

// What a model is fed with for a picture: `input`, a tensor, and where the picture lies in it.
export function preparedFor({ ort, settings }, { bytes, width, height }) {
  const { values, box, ...at } = prepared(settings.preparation, bytes, height, width);
  return { input: new ort.Tensor("float32", values, [1, 3, ...box]), ...placed({ ...at, box, width, height }) };
}

// The labels of a model by number.
export async function labelsOf(settings) {
  if (settings.labels) return settings.labels;
  const answer = await fetch("model/config.json");
  return answer.ok ? Object.values((await answer.json()).id2label || {}) : [];
}

// Bytes of red, green and blue of a picture file, and a canvas that shows it.
export async function decoded(file) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const { width, height } = bitmap;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const colors = context.getImageData(0, 0, width, height).data;
  const bytes = new Uint8Array(3 * width * height);
  for (let at = 0; at < width * height; at++) {
    for (let channel = 0; channel < 3; channel++) bytes[3 * at + channel] = colors[4 * at + channel];
  }
  return { canvas, bitmap, bytes, width, height };
}

// A color for each number.
export const colorOf = (number, opacity = 1) => `hsl(${(number * 137) % 360} 80% 45% / ${opacity})`;
