// Generation of text by Transformers.js, as a stream that a message can end.

// What a pipeline's `model` needs to hear messages between two tokens, and options of its `generate` for one request:
// `emit` gets each piece of text.
export function streaming({ js, pause }, { model, tokenizer }) {
  const stopping = new js.InterruptableStoppingCriteria();
  const forward = model.forward.bind(model);
  model.forward = async inputs => {
    await pause();
    return forward(inputs);
  };
  return {
    stop: () => stopping.interrupt(),
    options(emit) {
      stopping.reset();
      let text = "";
      const streamer = new js.TextStreamer(tokenizer, {
        skip_prompt: true, skip_special_tokens: true,
        callback_function(piece) { text += piece; emit(piece); },
      });
      return { streamer, stopping_criteria: stopping, text: () => text };
    },
  };
}
