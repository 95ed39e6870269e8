"""Networks inside ``torch.compile``: they depend on what is stored, so that Dynamo breaks the graph around them.

Imported where Dynamo reads such a call.
"""

from __future__ import annotations

import torch

from trnqc.sparse import api, planned

contract = torch.compiler.disable(api.contract)
run = torch.compiler.disable(planned.Plan.run)
