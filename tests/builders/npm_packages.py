"""A folder of npm packages with the files that pages have copies of, without their content."""

import json

ENGINE = "ort-wasm-simd-threaded.asyncify.wasm"


def npm_packages(folder, version="1.30.0", wanted="1.30.0", model_type="llama"):
    """Write ``node_modules`` with onnxruntime-web and a Transformers.js that wants a version of it and runs one type of
    models; the folder."""
    packages = {
        "onnxruntime-web": ({"version": version}, {"ort.webgpu.bundle.min.mjs": f'"{ENGINE}"', ENGINE: "\0asm"}),
        "@huggingface/transformers": (
            {"version": "4.3.0", "dependencies": {"onnxruntime-web": wanted}},
            {"transformers.min.js": f'"{ENGINE}","{model_type}"'},
        ),
    }
    for name, (facts, files) in packages.items():
        package = folder / "node_modules" / name
        (package / "dist").mkdir(parents=True)
        (package / "package.json").write_text(json.dumps({"name": name, **facts}))
        (package / "LICENSE").write_text("license\n")
        for file, text in files.items():
            (package / "dist" / file).write_text(text)
    return folder
