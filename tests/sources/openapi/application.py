"""An application of FastAPI's, on loopback: its document is FastAPI's own, its answers show what it was sent."""

import gzip
import socket
import threading
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import uvicorn
from fastapi import Body, Cookie, FastAPI, File, Form, Header, HTTPException, Path, Query, Request, Response, UploadFile
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

__all__ = ["PIXEL", "Application", "serving"]

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf500f0003860180"
    "5a347d6b0000000049454e44ae426082"
)


class Pet(BaseModel):
    name: str
    age: int | None = None
    tags: list[str] = []


class Login(BaseModel):
    user: str
    scopes: list[str] = []


@dataclass
class Application:
    """The running application.

    Args:
        url: Its root.
        document: What it says of itself.
        requests: What came, oldest first.
        slow: Set it to let ``/slow`` answer.
    """

    url: str
    document: dict[str, Any]
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    slow: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving() -> Generator[Application]:
    """Serve the application for the length of the block."""
    app = FastAPI(title="Pets", version="1")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        application = Application(f"http://127.0.0.1:{listener.getsockname()[1]}", {})
        add_routes(app, application)
        application.document = app.openapi()
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        listener.listen()
        thread.start()
        try:
            yield application
        finally:
            application.slow.set()
            server.should_exit = True
            thread.join(10)
    assert not thread.is_alive()


def add_routes(app: FastAPI, application: Application) -> None:  # noqa: C901 - one route after the other
    @app.middleware("http")
    async def remember(request: Request, call_next: Any) -> Any:
        application.requests.append(
            {
                "method": request.method,
                "target": request.url.path,
                "query": request.url.query,
                "headers": dict(request.headers),
            }
        )
        return await call_next(request)

    @app.get("/pets/{pet:path}", operation_id="getPet", tags=["pets"])
    def get_pet(
        pet: Annotated[str, Path()],
        tag: Annotated[list[str] | None, Query()] = None,
        x_trace: Annotated[str | None, Header()] = None,
        session: Annotated[str | None, Cookie()] = None,
    ) -> dict[str, Any]:
        """Find a pet."""
        return {"pet": pet, "tag": tag, "trace": x_trace, "session": session}

    @app.post("/pets", operation_id="addPet", tags=["pets", "read"], status_code=201)
    def add_pet(pet: Pet) -> Pet:
        """Add a pet."""
        return pet

    @app.post("/login", operation_id="login")
    def login(form: Annotated[Login, Form()]) -> Login:
        return form

    @app.post("/files", operation_id="upload")
    async def upload(
        note: Annotated[str, Form()], main: UploadFile, more: Annotated[list[UploadFile] | None, File()] = None
    ) -> dict[str, Any]:
        files = [main, *(more or [])]
        contents = [b64encode(await file.read()).decode() for file in files]
        return {
            "note": note,
            "files": [
                [file.filename, file.content_type, content] for file, content in zip(files, contents, strict=True)
            ],
        }

    @app.put("/blob", operation_id="putBlob")
    def put_blob(data: Annotated[bytes, Body(media_type="application/octet-stream")]) -> dict[str, Any]:
        return {"size": len(data)}

    @app.delete("/pets/{pet}", operation_id="deletePet", status_code=204)
    def delete_pet(pet: str) -> None: ...

    @app.get("/text")
    def text(size: int = 5) -> Response:
        return Response("é" * size, media_type="text/plain")

    @app.get("/packed", operation_id="packed")
    def packed() -> Response:
        return Response(gzip.compress(bytes(30_000_000)), headers={"content-encoding": "gzip"}, media_type="text/plain")

    @app.get("/image", operation_id="image")
    def image() -> Response:
        return Response(PIXEL, media_type="image/png")

    @app.get("/report", operation_id="report")
    def report(size: int = 4) -> Response:
        headers = {"content-disposition": 'attachment; filename="report.pdf"'}
        return Response(b"%PDF"[:size].ljust(size), media_type="application/pdf", headers=headers)

    @app.get("/pages", operation_id="pages")
    def pages(response: Response, page: int = 1) -> list[int]:
        response.headers["link"] = f'</pages?page={page + 1}>; rel="next"'
        response.headers["x-total-count"] = "30"
        response.set_cookie("session", "from-the-server")
        return [page * 10]

    @app.get("/fail/{status}", operation_id="fail")
    def fail(status: int) -> None:
        raise HTTPException(status, f"the reason for {status}")

    @app.get("/echo", operation_id="echo")
    def echo(request: Request) -> dict[str, Any]:
        return {"query": request.url.query, "headers": dict(request.headers)}

    @app.post("/slow", operation_id="slowly")
    @app.get("/slow", operation_id="slow")
    def slow() -> str:
        application.slow.wait(30)
        return "late"

    @app.get("/moved", operation_id="moved")
    def moved(to: str) -> RedirectResponse:
        return RedirectResponse(to)

    @app.post("/moved", operation_id="moveIt")
    def move_it() -> RedirectResponse:
        return RedirectResponse("/echo")

    @app.post("/token", include_in_schema=False)
    async def token(request: Request) -> Any:
        form = await request.form()
        if request.headers.get("authorization") != "Basic " + b64encode(b"robot:its%20secret").decode():
            raise HTTPException(401, "who is that?")
        count = sum(1 for one in application.requests if one["target"] == "/token")
        return {"access_token": f"granted-{form['scope']}-{count}", "token_type": "bearer", "expires_in": 3600}

    @app.get("/guarded", operation_id="guarded")
    def guarded(request: Request) -> str:
        if request.headers.get("authorization") != "Bearer granted-pets-2":
            raise HTTPException(401, f"not with {request.headers.get('authorization')}")
        return "welcome"
