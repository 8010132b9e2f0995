"""Addresses that contain a secret, in every place where users write one."""

from __future__ import annotations

SECRET = "hunter2Swordfish"
ADDRESSES = {
    "user": f"s3://AKID:{SECRET}@bucket/x.zarr",
    "token": f"https://{SECRET}@127.0.0.1:9/x.zarr",
    "slash": f"s3://AKID:{SECRET}/{SECRET}@bucket/x.zarr",
    "at": f"s3://AKID:a@{SECRET}@bucket/x.zarr",
    "mark": f"s3://AKID:a?{SECRET}@bucket/x.zarr",
    "hash": f"s3://AKID:a#{SECRET}@bucket/x.zarr",
    "space": f"s3://AKID:a {SECRET}@bucket/x.zarr",
    "quote": f"s3://AKID:a'{SECRET}\"{SECRET}@bucket/x.zarr",
    "query": f"s3://bucket/x.zarr?secret_access_key={SECRET}&region=eu",
    "signed": f"https://127.0.0.1:9/x.zarr?X-Amz-Signature={SECRET}&X-Amz-Date=1",
    "sas": f"az://c/x.zarr?sv=2024&sig={SECRET}",
    "fragment": f"https://127.0.0.1:9/x.zarr#access_token={SECRET}",
    "one slash": f"s3:/AKID:{SECRET}@bucket/x.zarr",
    "file": "file:" + f"//me:{SECRET}@host/x.zarr",
    "scheme": f"nosuch://me:{SECRET}@host/x.zarr?sig={SECRET}",
    "nowhere": f"s3://AKID:{SECRET}@",
    "dots": f"s3://AKID:{SECRET}@bucket/../x.zarr",
    "ftp": f"ftp://me:{SECRET}@127.0.0.1:9/x.zarr",
    "encoded": f"s3://AKID:%2F{SECRET}@bucket/x.zarr?endpoint=http://127.0.0.1:9",
}
