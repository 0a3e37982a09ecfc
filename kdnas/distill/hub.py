"""Model folders to the Hugging Face hub, and what can go wrong put into words.

The token is the one of the environment (``HF_TOKEN``) or of an earlier login on this machine; the
hub is ``HF_ENDPOINT``, else huggingface.co.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kdnas.errors import ConflictError, RequestError, StoreError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_GET_TOKEN = (
    "make one that may write at huggingface.co/settings/tokens, then set HF_TOKEN to it or run: "
    "hf auth login"
)


def check_push(repo_id: str, endpoint: str | None = None) -> None:
    """Check, before hours are spent, that a push can work: name, token, and that the hub takes it.

    Args:
        repo_id: ``owner/name``.
        endpoint: address of the hub; None takes ``HF_ENDPOINT``, else huggingface.co.

    Raises:
        RequestError: the name is no repository's, there is no token, or the hub refuses it.
        StoreError: the hub cannot be reached.
    """
    api = _api(repo_id, endpoint)
    with _in_words(repo_id, api):
        api.whoami()


def push_folder(
    folder: Path,
    repo_id: str,
    private: bool = False,
    endpoint: str | None = None,
    message: str = "Upload a model made with kdnas",
) -> str:
    """Make a model repository if it is not there yet, and commit all files of a folder to it.

    Args:
        folder: what to push, with everything in it.
        repo_id: ``owner/name``.
        private: make a new repository private; one that exists stays as it is.
        endpoint: address of the hub; None takes ``HF_ENDPOINT``, else huggingface.co.
        message: of the commit.

    Returns:
        Address of the repository.

    Raises:
        RequestError: the folder is empty, the name is no repository's, there is no token, or the
            hub refuses it.
        StoreError: the hub cannot be reached, or the upload broke off.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        raise ConflictError(f"there is nothing to push in {folder}; give a model folder")
    api = _api(repo_id, endpoint)
    with _in_words(repo_id, api):
        url = api.create_repo(repo_id, repo_type="model", private=private or None, exist_ok=True)
        api.upload_folder(
            repo_id=repo_id, repo_type="model", folder_path=folder, commit_message=message
        )
    return str(url)


def _api(repo_id: str, endpoint: str | None) -> HfApi:
    """Make a client with a token, for a name that is well formed."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
        well_formed = repo_id.count("/") == 1
    except HFValidationError:
        well_formed = False
    if not well_formed:
        raise RequestError(
            f"{repo_id!r} is no name of a repository; give owner/name, of letters, digits, '-', "
            "'_' and '.', such as my-team/my-student"
        )
    token = get_token()
    if not token:
        raise RequestError(f"pushing to {repo_id} needs a token of the hub; {_GET_TOKEN}")
    return HfApi(endpoint=endpoint, token=token, library_name="kdnas")


@contextmanager
def _in_words(repo_id: str, api: HfApi) -> Iterator[None]:
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        HfHubHTTPError,
        HTTPError,
        OfflineModeIsEnabled,
    )

    try:
        yield
    except OfflineModeIsEnabled:
        raise StoreError(
            f"{repo_id} was not pushed, since HF_HUB_OFFLINE is set; unset it and push again"
        ) from None
    except HfHubHTTPError as error:
        raise _refusal(repo_id, api, error) from None
    except RuntimeError as error:  # of hf_xet, which sends large files
        raise StoreError(
            f"pushing to {repo_id} broke off ({_short(error)}); push again, what has arrived is "
            "not sent twice"
        ) from error
    except (HTTPError, OSError) as error:
        raise StoreError(
            f"{repo_id} was not pushed: {api.endpoint} cannot be reached ({_short(error)}); check "
            "the network and HF_ENDPOINT and push again"
        ) from None


def _refusal(repo_id: str, api: HfApi, error: Exception) -> RequestError | StoreError:
    """Word an answer of the hub that is no success."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status == 401:
        return RequestError(
            f"{api.endpoint} does not know the token for {repo_id}, which may have expired; "
            f"{_GET_TOKEN}"
        )
    if status == 403:
        owner = repo_id.partition("/")[0]
        return RequestError(
            f"the token may not write to {repo_id}; give a token with write access to {owner}, "
            "or a repository of your own"
        )
    reason = getattr(error, "server_message", None) or _short(error)
    if status is not None and 400 <= status < 500 and status not in {408, 429}:
        return RequestError(
            f"{api.endpoint} refused {repo_id} ({status}: {reason}); check the name and push again"
        )
    return StoreError(
        f"pushing to {repo_id} broke off ({status or 'no answer'}: {reason}); push again later, "
        "what has arrived is not sent twice"
    )


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
