"""Networks inside ``torch.compile``: plans depend on the stored elements, so that Dynamo breaks the graph at the call.

This module is imported only if Dynamo is already loaded, because importing Dynamo takes longer than most networks.
"""

from __future__ import annotations

import torch

from trnqc.sparse import api
from trnqc.sparse.run import plan

contracted = torch.compiler.disable(api.contracted)
ran = torch.compiler.disable(plan.Plan.ran)
