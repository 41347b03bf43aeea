"""The signature of a request, for brokers with access control (1.0; 2.0 of 5.3+ accepts it too).

Source: acl/common/AclClientRPCHook.java, AclUtils.java; docs/formats/wire.md#signature.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from rmqtx.remoting.protocol.settings import Credentials

#: Never signed: the signature, and a field that 4.9.7 always skips and 5.3 and 5.5 skip for clients up to 4.9.3
#: (OUR_VERSION).
_UNSIGNED = ("Signature", "_UNIQUE_KEY_QUERY")


def signed(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """Return the fields of a request with the access key and the signature added."""
    result = {**fields, "AccessKey": credentials.access_key}
    if credentials.security_token is not None:
        result["SecurityToken"] = credentials.security_token
    names = sorted((name for name in result if name not in _UNSIGNED), key=lambda name: name.encode("utf-16-be"))
    content = "".join(result[name] for name in names).encode() + body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    result["Signature"] = base64.b64encode(digest).decode()
    return result
