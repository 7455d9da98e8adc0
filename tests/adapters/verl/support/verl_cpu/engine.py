"""FSDP2 for the actor. The frozen reference stays unwrapped: verl pins its memory, which needs an accelerator."""

import torch
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(FSDPEngineWithLMHead):
    def _build_fsdp_module(self, module):
        if not self.engine_config.forward_only:
            return super()._build_fsdp_module(module)
        self._autocast_dtype, self.scaler = torch.float32, None
        return module
