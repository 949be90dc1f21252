"""A bare Flask application that allows whatever it is asked: what a webhook costs that does nothing."""

import flask

app = flask.Flask("noop", static_folder=None)


@app.post("/")
def allow() -> flask.Response:
    asked = flask.request.get_json()
    response = {"uid": asked["request"]["uid"], "allowed": True}
    return flask.jsonify(apiVersion="admission.k8s.io/v1", kind="AdmissionReview", response=response)
