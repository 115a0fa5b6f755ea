"""The API server's certificate. The one that it would make itself is of RSA: its start and each new connection would take
more processor time.
"""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def private_key():
    """A new key, and its PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write(path):
    """Write a certificate for the loopback address, followed by that of its authority, and its key beside it (.key)."""
    (authority_key, _), (key, pem) = private_key(), private_key()
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = _builder("local-cloud", key, is_authority=False)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    both = (leaf, _builder("local-cloud-ca", authority_key, is_authority=True))
    signed = [builder.sign(authority_key, hashes.SHA256()) for builder in both]
    path.write_bytes(b"".join(each.public_bytes(serialization.Encoding.PEM) for each in signed))
    path.with_suffix(".key").touch(mode=0o600)
    path.with_suffix(".key").write_bytes(pem)


def _builder(name, key, is_authority):
    issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in ("local-cloud-ca", name))
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + 365 * day)
    return builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
