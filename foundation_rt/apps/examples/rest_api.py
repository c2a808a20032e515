"""Tools of a REST API, made from its OpenAPI document.

::

    PETS_URL=https://pets.example.com/v1 foundation-rt serve foundation_rt.examples.rest_api

Each operation is a tool; its parameters and its body are the arguments. `exclude` keeps dangerous
operations away from the model. Tools of your own stand beside those of the API.
"""

from __future__ import annotations

import os
from typing import Any

from foundation_rt import Server

PET: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["name"],
}
ONE_PET = {"200": {"description": "The pet.", "content": {"application/json": {"schema": PET}}}}
PET_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "pets", "version": "1.0.0"},
    "paths": {
        "/pets": {
            "post": {
                "operationId": "addPet",
                "summary": "Add a pet.",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": PET}},
                },
                "responses": ONE_PET,
            }
        },
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "summary": "Return a pet.",
                "parameters": [PET_ID],
                "responses": ONE_PET,
            },
            "delete": {"operationId": "deletePet", "parameters": [PET_ID], "responses": {}},
        },
    },
}
"""The API; usually a file: ``Server.from_openapi("pets.yaml")``."""

server = Server.from_openapi(
    DOCUMENT,
    base_url=os.environ.get("PETS_URL", "http://127.0.0.1:8080"),
    exclude=["deletePet"],
)


@server.tool
def name_a_pet(letter: str) -> str:
    """Propose a name for a pet."""
    return f"{letter[:1].upper()}ilo"


if __name__ == "__main__":
    server.run()
